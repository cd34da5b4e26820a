-- The hours left at which the customers of an organisation are warned, if not the usual ones: a JSON list of whole numbers.
create table balance_warnings (
  org_id TEXT not null primary key,
  below_hours TEXT not null
) STRICT;
