-- Times are Unix microseconds unless they are text, which is the ledger's own form.
CREATE TABLE plans (
  id            TEXT PRIMARY KEY,
  version       INTEGER NOT NULL,
  state         TEXT NOT NULL,
  requester     TEXT NOT NULL,
  operation     TEXT NOT NULL,
  effect_digest TEXT NOT NULL,
  created       INTEGER NOT NULL,
  body          BLOB NOT NULL
) STRICT;
CREATE INDEX plans_created ON plans (created, id);
CREATE INDEX plans_state ON plans (state, created, id);
CREATE INDEX plans_open ON plans (effect_digest, requester) WHERE state = 'proposed';

CREATE TABLE locks (
  object TEXT PRIMARY KEY,
  plan   TEXT NOT NULL,
  since  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX locks_plan ON locks (plan);

CREATE TABLE nonces (
  nonce   TEXT PRIMARY KEY,
  expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX nonces_expires ON nonces (expires);

CREATE TABLE hits (
  bucket TEXT NOT NULL,
  at     INTEGER NOT NULL
) STRICT;
CREATE INDEX hits_bucket ON hits (bucket, at);

CREATE TABLE sealed (
  plan   TEXT NOT NULL,
  handle TEXT NOT NULL,
  box    BLOB NOT NULL,
  PRIMARY KEY (plan, handle)
) STRICT, WITHOUT ROWID;

CREATE TABLE marks (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
  id     TEXT PRIMARY KEY,
  host   TEXT NOT NULL,
  pid    INTEGER NOT NULL,
  opened INTEGER NOT NULL,
  seen   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row a tree, moved in each appending transaction. clock is the latest time that a writer has had.
CREATE TABLE heads (
  tree     TEXT PRIMARY KEY,
  size     INTEGER NOT NULL,
  frontier BLOB NOT NULL,
  note     TEXT NOT NULL,
  clock    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO heads VALUES ('write', 0, x'', '', 0), ('read', 0, x'', '', 0);

CREATE TABLE write_records (
  idx    INTEGER PRIMARY KEY,
  header BLOB,
  hashes BLOB NOT NULL,
  sig    BLOB,
  parts  BLOB,
  ts     TEXT NOT NULL,
  kind   TEXT NOT NULL,
  op     TEXT NOT NULL,
  actor  TEXT NOT NULL,
  client TEXT NOT NULL,
  target TEXT NOT NULL,
  status TEXT NOT NULL,
  effect TEXT NOT NULL,
  plan   TEXT NOT NULL
) STRICT;
-- Searching walks this narrow copy, which grows at its end, and not the rows with their parts.
CREATE INDEX write_columns ON write_records (idx, ts, kind, op, actor, client, target, status, effect, plan);
CREATE INDEX write_ts ON write_records (ts);
CREATE INDEX write_plan ON write_records (plan) WHERE plan <> '';

CREATE TABLE read_records (
  idx    INTEGER PRIMARY KEY,
  header BLOB,
  hashes BLOB NOT NULL,
  sig    BLOB,
  parts  BLOB,
  ts     TEXT NOT NULL,
  kind   TEXT NOT NULL,
  op     TEXT NOT NULL,
  actor  TEXT NOT NULL,
  client TEXT NOT NULL,
  target TEXT NOT NULL,
  status TEXT NOT NULL,
  effect TEXT NOT NULL,
  plan   TEXT NOT NULL
) STRICT;
CREATE INDEX read_columns ON read_records (idx, ts, kind, op, actor, client, target, status, effect, plan);
CREATE INDEX read_ts ON read_records (ts);
CREATE INDEX read_plan ON read_records (plan) WHERE plan <> '';
