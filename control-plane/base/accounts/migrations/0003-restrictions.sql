-- What an organisation may not do: nothing that costs money while it is suspended, and nothing but read until it has had money.
alter table orgs add column suspended_ms INTEGER;
alter table orgs add column suspended_reason TEXT;
alter table orgs add column unfunded INTEGER not null default 0;
-- The person whose login made the key; it ends when the person loses what it may do. Null for the keys of an organisation.
alter table api_keys add column user_id TEXT;
create index api_keys_user on api_keys (user_id);
