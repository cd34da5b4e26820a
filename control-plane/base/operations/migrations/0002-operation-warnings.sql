-- What the caller was told when the operation was accepted, as a JSON list of sentences.
alter table operations add column warnings TEXT not null default '[]';
