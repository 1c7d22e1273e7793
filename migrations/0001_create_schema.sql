-- Oncepress: the whole state. D1 (the Worker) and SQLite (the tests) run this same text.
-- Times are milliseconds since 1970-01-01T00:00:00Z. Money is integer nano- or micro-US-dollars.

-- Which environment this database belongs to, and other single facts.
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
  account TEXT PRIMARY KEY,
  daily_credits INTEGER CHECK (daily_credits >= 0), -- micro-USD; NULL is unlimited
  timezone TEXT NOT NULL DEFAULT 'UTC',
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- API keys, by the SHA-256 of their text; the text itself is nowhere.
CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  account TEXT NOT NULL,
  label TEXT,
  defaults TEXT NOT NULL DEFAULT '{}',
  created_at INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_account ON api_keys (account, created_at);

-- One row a purchase. `token` is the fencing token of whoever may settle it.
CREATE TABLE generations (
  id TEXT PRIMARY KEY,
  account TEXT NOT NULL,
  site TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  topic TEXT,
  surface TEXT NOT NULL,                -- api | generate | stream
  key TEXT NOT NULL,                    -- as shown: idem:… or the operation key
  claim_key TEXT NOT NULL,              -- as claimed: holds the whole digest
  operation INTEGER NOT NULL,           -- 1: an operation key, 0: a derived key
  fingerprint TEXT NOT NULL,
  leaves TEXT NOT NULL,                 -- digest a JSON leaf, to say which fields conflict
  state TEXT NOT NULL CHECK (state IN
    ('queued', 'running', 'generated', 'held', 'failed', 'unknown', 'superseded')),
  reason TEXT,                          -- why held, failed or unknown: a stable code
  detail TEXT,                          -- the same in words; never prompt, output or secret
  token TEXT NOT NULL,
  lease_until INTEGER NOT NULL,
  anchor_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,          -- end of the window, or of the operation key
  request_id TEXT NOT NULL,
  model TEXT NOT NULL,
  model_version TEXT,
  json_mode INTEGER NOT NULL DEFAULT 0, -- 1: JSON was asked for
  continues INTEGER NOT NULL DEFAULT 0, -- 1: a further hop of a long answer
  from_queue INTEGER NOT NULL DEFAULT 0, -- 1: a queue message stands behind it
  upstream TEXT NOT NULL,               -- the path at Gemini
  created_at INTEGER NOT NULL,
  completed_at INTEGER,
  updated_at INTEGER NOT NULL,
  credit_day TEXT NOT NULL,             -- the day, in the account's time zone, that pays
  credits_reserved INTEGER NOT NULL DEFAULT 0 CHECK (credits_reserved >= 0),
  credits_spent INTEGER NOT NULL DEFAULT 0 CHECK (credits_spent >= 0),
  credits_estimate INTEGER NOT NULL DEFAULT 0, -- what each run of it reserves
  output_id TEXT,                       -- names the stored output; another for each purchase
  output_where TEXT,                    -- d1 | r2
  output_parts INTEGER NOT NULL DEFAULT 0,
  output_type TEXT,                     -- the media type of the stored answer
  output_headers TEXT,                  -- Gemini's own tracing headers, as JSON
  finish_reason TEXT,
  prompt_tokens INTEGER NOT NULL DEFAULT 0,
  cached_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  thought_tokens INTEGER NOT NULL DEFAULT 0,
  total_tokens INTEGER NOT NULL DEFAULT 0,
  cost_nano INTEGER NOT NULL DEFAULT 0,
  evidence_of TEXT,                     -- superseded: the generation that a successor took over
  owed INTEGER NOT NULL DEFAULT 0 CHECK (owed >= 0), -- deliveries that are not final
  purge_at INTEGER                      -- NULL while something still needs the row
) STRICT;

CREATE INDEX generations_by_time ON generations (created_at DESC, id DESC);
CREATE INDEX generations_by_account ON generations (account, created_at DESC, id DESC);
CREATE INDEX generations_by_scope ON generations (account, site, pipeline, created_at DESC, id DESC);
CREATE INDEX generations_by_key ON generations (account, key, created_at DESC);
CREATE INDEX generations_by_request ON generations (account, request_id);
CREATE INDEX generations_unsettled ON generations (state, lease_until)
  WHERE state IN ('queued', 'running', 'unknown', 'held');
CREATE INDEX generations_stuck ON generations (account, state)
  WHERE state IN ('held', 'unknown');
CREATE INDEX generations_to_decide ON generations (lease_until)
  WHERE state = 'unknown' AND operation = 0;
CREATE INDEX generations_evidence ON generations (evidence_of) WHERE evidence_of IS NOT NULL;
CREATE INDEX generations_to_purge ON generations (purge_at) WHERE purge_at IS NOT NULL;

-- Who holds a key: the one atomic arbiter. A key has at most one generation that is not settled;
-- settled ones answer while their window lasts (one a slot), or a delivery of them is owed.
CREATE UNIQUE INDEX generations_active ON generations (claim_key)
  WHERE state IN ('queued', 'running', 'unknown', 'held');
CREATE INDEX generations_in_window ON generations (claim_key, expires_at)
  WHERE state = 'generated';
CREATE INDEX generations_owed ON generations (claim_key)
  WHERE state = 'generated' AND purge_at IS NULL;

-- The caller's request, until its generation is settled and nothing more needs it.
CREATE TABLE request_bodies (
  generation_id TEXT NOT NULL,
  part INTEGER NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (generation_id, part)
) STRICT, WITHOUT ROWID;

-- Paid-for answers, cut into parts below D1's row limit. Large ones are in R2 instead.
CREATE TABLE outputs (
  output_id TEXT NOT NULL,
  part INTEGER NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (output_id, part)
) STRICT, WITHOUT ROWID;

-- The outbox: one generation owed to one destination.
CREATE TABLE deliveries (
  id TEXT PRIMARY KEY,
  generation_id TEXT NOT NULL,
  account TEXT NOT NULL,
  site TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  publisher TEXT NOT NULL,
  target TEXT NOT NULL,                 -- resolved, frozen at the claim
  status TEXT NOT NULL CHECK (status IN
    ('waiting', 'pending', 'published', 'dead', 'cancelled', 'outcome_unknown')),
  next_attempt_at INTEGER NOT NULL,     -- due from then on
  lease_token TEXT,                     -- of the drain that holds it; pending rows only
  lease_until INTEGER NOT NULL DEFAULT 0, -- until when it holds it
  serial_lane TEXT,                     -- what takes one writer at a time, as leased: a branch
  done_token TEXT,                      -- of the drain that recorded the newest attempt
  maybe_sent INTEGER NOT NULL DEFAULT 0, -- 1: an attempt may have taken effect
  attempts INTEGER NOT NULL DEFAULT 0,
  attempt_log TEXT NOT NULL DEFAULT '[]',
  attempted_at INTEGER,                 -- when the newest attempt was recorded
  progress TEXT,
  reference TEXT,
  error TEXT,
  stale_alerted INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  due_since INTEGER NOT NULL,           -- when it became pending
  published_at INTEGER,
  final_at INTEGER
) STRICT;

CREATE INDEX deliveries_by_generation ON deliveries (generation_id, status);
CREATE INDEX deliveries_due ON deliveries (publisher, account, next_attempt_at)
  WHERE status = 'pending';
CREATE INDEX deliveries_stale ON deliveries (stale_alerted, due_since)
  WHERE status = 'pending';
CREATE INDEX deliveries_in_serial_lane ON deliveries (serial_lane)
  WHERE lease_token IS NOT NULL AND serial_lane IS NOT NULL;
CREATE INDEX deliveries_attempted ON deliveries (attempted_at)
  WHERE status = 'pending' AND attempted_at IS NOT NULL;
CREATE INDEX deliveries_by_status ON deliveries (account, status, created_at DESC, id DESC);
CREATE INDEX deliveries_unwell ON deliveries (status, created_at DESC, id DESC)
  WHERE status IN ('dead', 'outcome_unknown');
CREATE INDEX deliveries_cancelled ON deliveries (created_at DESC, id DESC)
  WHERE status = 'cancelled';
CREATE INDEX deliveries_by_time ON deliveries (created_at DESC, id DESC);
CREATE INDEX deliveries_by_account ON deliveries (account, created_at DESC, id DESC);
CREATE INDEX deliveries_by_target ON deliveries (publisher, target, created_at);

CREATE TABLE credit_days (
  account TEXT NOT NULL,
  day TEXT NOT NULL,
  reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  spent INTEGER NOT NULL DEFAULT 0 CHECK (spent >= 0),
  changed_at INTEGER NOT NULL DEFAULT 0,
  warned INTEGER NOT NULL DEFAULT 0,    -- 1: a person heard that the day's limit comes near
  PRIMARY KEY (account, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_days (
  account TEXT NOT NULL,
  day TEXT NOT NULL,
  site TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  model TEXT NOT NULL,
  generations INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0,
  cached_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens INTEGER NOT NULL DEFAULT 0,
  thought_tokens INTEGER NOT NULL DEFAULT 0,
  cost_nano INTEGER NOT NULL DEFAULT 0,
  published INTEGER NOT NULL DEFAULT 0, -- deliveries of that day's generations
  replays INTEGER NOT NULL DEFAULT 0,
  saved_nano INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (account, day, site, pipeline, model)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_days_by_day ON usage_days (day);

-- One row a firing of the cron trigger, so that a double or missed one shows.
CREATE TABLE ticks (
  scheduled_at INTEGER PRIMARY KEY,
  fired INTEGER NOT NULL DEFAULT 1,
  token TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  finished_at INTEGER,
  summary TEXT
) STRICT;

-- What a person must hear of, bundled by kind and pipeline until it is sent.
CREATE TABLE alerts (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  account TEXT NOT NULL,
  site TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  count INTEGER NOT NULL,
  topic TEXT,                           -- of the newest event
  detail TEXT,
  original_at INTEGER,                  -- when the original of the newest duplicate was made
  opened_at INTEGER NOT NULL,
  newest_at INTEGER NOT NULL,           -- when the newest event was added
  closes_at INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'closed', 'sent')),
  lease_token TEXT,
  next_attempt_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  sent_at INTEGER
) STRICT;

CREATE UNIQUE INDEX alerts_open ON alerts (kind, account, site, pipeline) WHERE state = 'open';
CREATE INDEX alerts_unsent ON alerts (next_attempt_at) WHERE state <> 'sent';
CREATE INDEX alerts_sent ON alerts (sent_at) WHERE state = 'sent';

-- A bundle takes events until it closes, whether or not anybody was there to send it by then:
-- whatever comes later opens the next one.
CREATE TRIGGER alert_closes BEFORE INSERT ON alerts
BEGIN
  UPDATE alerts SET state = 'closed'
  WHERE kind = NEW.kind AND account = NEW.account AND site = NEW.site
    AND pipeline = NEW.pipeline AND state = 'open' AND closes_at <= NEW.opened_at;
END;

CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  account TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  reason TEXT,
  token TEXT NOT NULL UNIQUE
) STRICT;

CREATE INDEX audit_by_subject ON audit (subject);

-- Ids of purged generations: they answer 410 instead of 404.
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  account TEXT NOT NULL,
  purged_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Named counts a day: key-value reads, writes and their errors.
CREATE TABLE counters (
  day TEXT NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (day, name)
) STRICT, WITHOUT ROWID;

-- Batches of counts that were added already, so that a repeated one adds nothing.
CREATE TABLE flushes (
  token TEXT PRIMARY KEY,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX flushes_by_time ON flushes (at);

CREATE TABLE digests (
  day TEXT PRIMARY KEY,                 -- the local date it was made for
  made_at INTEGER NOT NULL,
  figures TEXT NOT NULL,
  body TEXT NOT NULL,
  sent_at INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0,
  next_attempt_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX digests_unsent ON digests (next_attempt_at) WHERE sent_at IS NULL;

-- A publisher that failed repeatedly is left alone until then.
CREATE TABLE circuits (
  publisher TEXT PRIMARY KEY,
  failures INTEGER NOT NULL,
  open_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Credits follow the generation's own columns, so that they move exactly once with its state.
CREATE TRIGGER credits_on_insert AFTER INSERT ON generations
BEGIN
  INSERT INTO credit_days (account, day) VALUES (NEW.account, NEW.credit_day)
  ON CONFLICT DO NOTHING;
  UPDATE credit_days SET
    reserved = reserved + NEW.credits_reserved,
    spent = spent + NEW.credits_spent,
    changed_at = NEW.updated_at
  WHERE account = NEW.account AND day = NEW.credit_day;
END;

-- One change a day, so that nobody is warned by a sum in between.
CREATE TRIGGER credits_on_update
AFTER UPDATE OF credits_reserved, credits_spent, credit_day ON generations
WHEN NEW.credits_reserved <> OLD.credits_reserved OR NEW.credits_spent <> OLD.credits_spent
  OR NEW.credit_day <> OLD.credit_day
BEGIN
  INSERT INTO credit_days (account, day) VALUES (NEW.account, NEW.credit_day)
  ON CONFLICT DO NOTHING;
  UPDATE credit_days SET
    reserved = reserved + (day = NEW.credit_day) * NEW.credits_reserved
      - (day = OLD.credit_day) * OLD.credits_reserved,
    spent = spent + (day = NEW.credit_day) * NEW.credits_spent
      - (day = OLD.credit_day) * OLD.credits_spent,
    changed_at = NEW.updated_at
  WHERE account = NEW.account AND day IN (OLD.credit_day, NEW.credit_day);
END;

-- Once an account and day a person hears that less than a fifth of them is left. What is reserved
-- counts: calls are refused by it too.
CREATE TRIGGER warn_of_credits AFTER UPDATE OF reserved, spent ON credit_days
WHEN NEW.warned = 0 AND NEW.spent + NEW.reserved > OLD.spent + OLD.reserved
  AND (NEW.spent + NEW.reserved) * 5 >=
    (SELECT daily_credits * 4 FROM accounts WHERE account = NEW.account)
BEGIN
  INSERT INTO alerts (kind, account, site, pipeline, count, detail, opened_at, newest_at,
    closes_at, state, next_attempt_at)
  SELECT 'credits', NEW.account, '', '', 1, json_object('day', NEW.day, 'spent', NEW.spent,
      'reserved', NEW.reserved, 'limit', daily_credits),
    NEW.changed_at, NEW.changed_at, NEW.changed_at + 300000, 'open', NEW.changed_at + 300000
  FROM accounts WHERE account = NEW.account
  ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET
    detail = excluded.detail, newest_at = MAX(newest_at, excluded.newest_at);
  UPDATE credit_days SET warned = 1 WHERE account = NEW.account AND day = NEW.day;
END;

-- Usage follows the output: each stored output counts once, when it is first named.
CREATE TRIGGER usage_on_update AFTER UPDATE OF output_id ON generations
WHEN NEW.output_id IS NOT NULL AND NEW.output_id IS NOT OLD.output_id
BEGIN
  INSERT INTO usage_days (account, day, site, pipeline, model, generations,
    prompt_tokens, cached_tokens, output_tokens, thought_tokens, cost_nano)
  VALUES (NEW.account, NEW.credit_day, NEW.site, NEW.pipeline, NEW.model, 1,
    NEW.prompt_tokens, NEW.cached_tokens, NEW.output_tokens, NEW.thought_tokens, NEW.cost_nano)
  ON CONFLICT (account, day, site, pipeline, model) DO UPDATE SET
    generations = generations + 1,
    prompt_tokens = prompt_tokens + excluded.prompt_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    thought_tokens = thought_tokens + excluded.thought_tokens,
    cost_nano = cost_nano + excluded.cost_nano;
END;

CREATE TRIGGER usage_on_insert AFTER INSERT ON generations
WHEN NEW.output_id IS NOT NULL AND NEW.reason IS NOT 'replaced'
BEGIN
  INSERT INTO usage_days (account, day, site, pipeline, model, generations,
    prompt_tokens, cached_tokens, output_tokens, thought_tokens, cost_nano)
  VALUES (NEW.account, NEW.credit_day, NEW.site, NEW.pipeline, NEW.model, 1,
    NEW.prompt_tokens, NEW.cached_tokens, NEW.output_tokens, NEW.thought_tokens, NEW.cost_nano)
  ON CONFLICT (account, day, site, pipeline, model) DO UPDATE SET
    generations = generations + 1,
    prompt_tokens = prompt_tokens + excluded.prompt_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    thought_tokens = thought_tokens + excluded.thought_tokens,
    cost_nano = cost_nano + excluded.cost_nano;
END;

-- A person hears of what is held or unknown, with the transition itself.
CREATE TRIGGER alert_on_generation AFTER UPDATE OF state ON generations
WHEN NEW.state IN ('held', 'unknown') AND NEW.state <> OLD.state
BEGIN
  INSERT INTO alerts (kind, account, site, pipeline, count, topic, detail, opened_at, newest_at,
    closes_at, state, next_attempt_at)
  VALUES (NEW.state, NEW.account, NEW.site, NEW.pipeline, 1, NEW.topic, NEW.reason,
    NEW.updated_at, NEW.updated_at, NEW.updated_at + 300000, 'open', NEW.updated_at + 300000)
  ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET
    count = count + 1, topic = excluded.topic, detail = excluded.detail,
    newest_at = MAX(newest_at, excluded.newest_at);
END;

-- The same for a delivery that needs a person.
CREATE TRIGGER alert_on_delivery AFTER UPDATE OF status ON deliveries
WHEN NEW.status IN ('dead', 'outcome_unknown') AND NEW.status <> OLD.status
BEGIN
  INSERT INTO alerts (kind, account, site, pipeline, count, topic, detail, opened_at, newest_at,
    closes_at, state, next_attempt_at)
  VALUES (NEW.status, NEW.account, NEW.site, NEW.pipeline, 1,
    (SELECT topic FROM generations WHERE id = NEW.generation_id), NEW.error,
    NEW.final_at, NEW.final_at, NEW.final_at + 300000, 'open', NEW.final_at + 300000)
  ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET
    count = count + 1, topic = excluded.topic, detail = excluded.detail,
    newest_at = MAX(newest_at, excluded.newest_at);
END;

-- What is owed is counted with each delivery's own change, so that no drain has to look. Retention
-- starts when the last one becomes final, and stops when one is owed again.
CREATE TRIGGER owed_on_delivery_update AFTER UPDATE OF status ON deliveries
WHEN (NEW.status IN ('pending', 'outcome_unknown')) <> (OLD.status IN ('pending', 'outcome_unknown'))
BEGIN
  UPDATE generations SET
    owed = owed + (NEW.status IN ('pending', 'outcome_unknown'))
      - (OLD.status IN ('pending', 'outcome_unknown')),
    purge_at = CASE WHEN owed + (NEW.status IN ('pending', 'outcome_unknown'))
        - (OLD.status IN ('pending', 'outcome_unknown')) > 0
      THEN NULL ELSE NEW.final_at + 2592000000 END
  WHERE id = NEW.generation_id;
END;

CREATE TRIGGER owed_on_delivery_insert AFTER INSERT ON deliveries
WHEN NEW.status IN ('pending', 'outcome_unknown')
BEGIN
  UPDATE generations SET owed = owed + 1, purge_at = NULL WHERE id = NEW.generation_id;
END;

-- A purged generation leaves its id, and nothing that hangs on it.
CREATE TRIGGER purge_generation AFTER DELETE ON generations
BEGIN
  INSERT OR IGNORE INTO tombstones (id, account, purged_at)
  VALUES (OLD.id, OLD.account, OLD.purge_at);
  DELETE FROM deliveries WHERE generation_id = OLD.id;
  DELETE FROM request_bodies WHERE generation_id = OLD.id;
  DELETE FROM outputs WHERE output_id = OLD.output_id;
END;
