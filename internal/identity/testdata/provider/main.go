// The provider of the test: the example server of zitadel/oidc, with its storage in memory, on loopback. It prints its
// issuer and serves until its input ends. The redirect address is its argument.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(redirect string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := fmt.Sprintf("http://localhost:%d", l.Addr().(*net.TCPAddr).Port)
	storage.RegisterClients(storage.WebClient("web", "secret", redirect), storage.NativeClient("native", redirect))
	router := exampleop.SetupServer(issuer, storage.NewStorage(storage.NewUserStore(issuer)), slog.New(slog.DiscardHandler), false)
	server := &http.Server{Handler: router, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Shutdown(context.Background())
	}()
	fmt.Println(issuer)
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
