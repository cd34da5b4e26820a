-- The replicas that have failed or refused the callers of this process again and again, as a JSON list of their ids.
alter table model_loads add column suspects TEXT not null default '[]';
-- When the replica last gave a real answer to our question, after some process had suspected it.
alter table model_replicas add column proven_ms INTEGER;
