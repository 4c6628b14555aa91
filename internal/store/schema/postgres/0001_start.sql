-- Times are Unix microseconds unless they are text, which is the ledger's own form.
CREATE TABLE plans (
  id            TEXT COLLATE "C" PRIMARY KEY,
  version       BIGINT NOT NULL,
  state         TEXT COLLATE "C" NOT NULL,
  requester     TEXT COLLATE "C" NOT NULL,
  operation     TEXT COLLATE "C" NOT NULL,
  effect_digest TEXT COLLATE "C" NOT NULL,
  created       BIGINT NOT NULL,
  body          BYTEA NOT NULL
);
CREATE INDEX plans_created ON plans (created, id);
CREATE INDEX plans_state ON plans (state, created, id);
CREATE INDEX plans_open ON plans (effect_digest, requester) WHERE state = 'proposed';

CREATE TABLE locks (
  object TEXT COLLATE "C" PRIMARY KEY,
  plan   TEXT COLLATE "C" NOT NULL,
  since  BIGINT NOT NULL
);
CREATE INDEX locks_plan ON locks (plan);

CREATE TABLE nonces (
  nonce   TEXT COLLATE "C" PRIMARY KEY,
  expires BIGINT NOT NULL
);
CREATE INDEX nonces_expires ON nonces (expires);

CREATE TABLE hits (
  bucket TEXT COLLATE "C" NOT NULL,
  at     BIGINT NOT NULL
);
CREATE INDEX hits_bucket ON hits (bucket, at);

CREATE TABLE sealed (
  plan   TEXT COLLATE "C" NOT NULL,
  handle TEXT COLLATE "C" NOT NULL,
  box    BYTEA NOT NULL,
  PRIMARY KEY (plan, handle)
);

CREATE TABLE marks (
  name  TEXT COLLATE "C" PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE sessions (
  id     TEXT COLLATE "C" PRIMARY KEY,
  host   TEXT COLLATE "C" NOT NULL,
  pid    BIGINT NOT NULL,
  opened BIGINT NOT NULL,
  seen   BIGINT NOT NULL
);

-- One row a tree, moved in each appending transaction. clock is the latest time that a writer has had.
CREATE TABLE heads (
  tree     TEXT COLLATE "C" PRIMARY KEY,
  size     BIGINT NOT NULL,
  frontier BYTEA NOT NULL,
  note     TEXT COLLATE "C" NOT NULL,
  clock    BIGINT NOT NULL
);
INSERT INTO heads VALUES ('write', 0, '', '', 0), ('read', 0, '', '', 0);

CREATE TABLE write_records (
  idx    BIGINT PRIMARY KEY,
  header BYTEA,
  hashes BYTEA NOT NULL,
  sig    BYTEA,
  parts  BYTEA,
  ts     TEXT COLLATE "C" NOT NULL,
  kind   TEXT COLLATE "C" NOT NULL,
  op     TEXT COLLATE "C" NOT NULL,
  actor  TEXT COLLATE "C" NOT NULL,
  client TEXT COLLATE "C" NOT NULL,
  target TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL,
  effect TEXT COLLATE "C" NOT NULL,
  plan   TEXT COLLATE "C" NOT NULL
);
-- Searching by one exact column is the common case.
CREATE INDEX write_op ON write_records (op, idx);
CREATE INDEX write_ts ON write_records (ts);
CREATE INDEX write_plan ON write_records (plan) WHERE plan <> '';

CREATE TABLE read_records (
  idx    BIGINT PRIMARY KEY,
  header BYTEA,
  hashes BYTEA NOT NULL,
  sig    BYTEA,
  parts  BYTEA,
  ts     TEXT COLLATE "C" NOT NULL,
  kind   TEXT COLLATE "C" NOT NULL,
  op     TEXT COLLATE "C" NOT NULL,
  actor  TEXT COLLATE "C" NOT NULL,
  client TEXT COLLATE "C" NOT NULL,
  target TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL,
  effect TEXT COLLATE "C" NOT NULL,
  plan   TEXT COLLATE "C" NOT NULL
);
CREATE INDEX read_op ON read_records (op, idx);
CREATE INDEX read_ts ON read_records (ts);
CREATE INDEX read_plan ON read_records (plan) WHERE plan <> '';
