-- The GPUs of the host that its last report calls broken, with the reasons, as a JSON list. Read every minute, unlike the whole inventory.
alter table machines add column broken_gpus TEXT not null default '[]';
