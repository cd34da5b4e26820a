-- The names of the variables with which the instance was launched, as a JSON list. Their values are sealed in `launch`.
alter table instances add column env_names TEXT not null default '[]';
