-- The start of the first term, on whose day of the month further terms begin. For older contracts, the present term counts as the first.
alter table reservations add column first_ms INTEGER not null default 0;

update reservations set first_ms = starts_ms;
