-- How many mails an organisation has caused, or an address has got, in the day that began with the first of them.
create table mail_counts (
  -- SHA-256 in hex: an address may be that of a stranger
  subject TEXT not null primary key,
  mails INTEGER not null,
  began_ms INTEGER not null
) STRICT;
create index mail_counts_by_time on mail_counts (began_ms);
