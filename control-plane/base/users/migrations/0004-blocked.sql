-- Since when the operator lets the person sign in no more; null for everybody else.
alter table users add column blocked_ms INTEGER;
