-- What people are to read in a mail. A row is written with its event, and deleted in the transaction that makes a letter of it.
create table notices (
  id TEXT not null primary key,
  org_id TEXT not null,
  topic TEXT not null,
  -- The type of the event.
  type TEXT not null,
  subject_id TEXT not null,
  data TEXT not null,
  created_ms INTEGER not null,
  -- When a letter may be made of it.
  due_ms INTEGER not null
) STRICT;

create index notices_due on notices (due_ms);
create index notices_by_org on notices (org_id, topic);
create index notices_by_time on notices (created_ms);

-- The text that members of an organisation are mailed. It stays for a while, because it counts for the limits of the organisation.
create table notice_letters (
  id TEXT not null primary key,
  org_id TEXT not null,
  topic TEXT not null,
  subject TEXT not null,
  body TEXT not null,
  -- The time of the oldest event in it.
  first_ms INTEGER not null,
  created_ms INTEGER not null
) STRICT;

create index notice_letters_by_org on notice_letters (org_id, created_ms);
create index notice_letters_by_time on notice_letters (created_ms);

-- A letter on its way to one person. The row is deleted when the mail server has taken the mail.
create table notice_mails (
  letter_id TEXT not null references notice_letters (id),
  user_id TEXT not null,
  attempts INTEGER not null,
  due_ms INTEGER not null,
  primary key (letter_id, user_id)
) STRICT;

create index notice_mails_due on notice_mails (due_ms);
-- Those that wait for the operator.
create index notice_mails_refused on notice_mails (letter_id) where attempts >= 3;

-- Machines whose supplier was told that they are offline. The row is deleted when the machine is online again, or leaves the market.
create table notice_machines (
  machine_id TEXT not null primary key,
  org_id TEXT not null,
  told_ms INTEGER not null
) STRICT;
