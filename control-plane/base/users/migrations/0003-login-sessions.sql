-- The session that has approved the login. While it lives, the program can fetch the key. Logins from before this column give none.
alter table device_logins add column session_id TEXT;
create index device_logins_session on device_logins (session_id) where session_id is not null;
