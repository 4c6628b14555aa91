-- Small documents that are no plans: accounts, credentials, sessions, clients, mandates, settings. expires 0 is never.
CREATE TABLE docs (
  kind    TEXT COLLATE "C" NOT NULL,
  id      TEXT COLLATE "C" NOT NULL,
  owner   TEXT COLLATE "C" NOT NULL,
  expires BIGINT NOT NULL,
  version BIGINT NOT NULL,
  body    BYTEA NOT NULL,
  PRIMARY KEY (kind, id)
);
CREATE INDEX docs_owner ON docs (kind, owner, id);
CREATE INDEX docs_expires ON docs (kind, expires) WHERE expires > 0;
