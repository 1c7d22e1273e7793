CREATE TABLE IF NOT EXISTS outbox (
  id TEXT PRIMARY KEY,
  site TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  payload TEXT NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  status TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  published_at INTEGER
);
CREATE INDEX IF NOT EXISTS outbox_pending ON outbox (status, created_at);
