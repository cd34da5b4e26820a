-- The control plane that serves the request. Requests from before this column have none: no living control plane serves them.
alter table request_receipts add column member TEXT not null default '';
