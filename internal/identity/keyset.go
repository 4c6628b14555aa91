package identity

import "sync"

type keyCache struct{ mu sync.Mutex }
