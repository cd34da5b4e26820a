-- Whether the person wants mails about what happens in its organisations.
alter table users add column mail_notices INTEGER not null default 1;
