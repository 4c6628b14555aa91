-- Small documents that are no plans: accounts, credentials, sessions, clients, mandates, settings. expires 0 is never.
CREATE TABLE docs (
  kind    TEXT NOT NULL,
  id      TEXT NOT NULL,
  owner   TEXT NOT NULL,
  expires INTEGER NOT NULL,
  version INTEGER NOT NULL,
  body    BLOB NOT NULL,
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX docs_owner ON docs (kind, owner, id);
CREATE INDEX docs_expires ON docs (kind, expires) WHERE expires > 0;
