-- Receipts go after their retention, the transfers of the ledger stay: what was charged for those that are gone keeps the proof whole.
create table forgotten_receipts (
  id INTEGER not null primary key check (id = 1),
  receipts INTEGER not null,
  charged_ucents INTEGER not null
) STRICT;

create index request_receipts_by_close on request_receipts (closed_ms) where closed_ms is not null;
