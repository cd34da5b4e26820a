-- A month of one wallet, for the bill. Without these, a bill would read the transfers of all organisations.
create index transfers_from_wallets on transfers (debit_account_id, posted_ms) where substr(debit_account_id, 1, 16) = 'customer_wallet:';
create index transfers_to_wallets on transfers (credit_account_id, posted_ms) where substr(credit_account_id, 1, 16) = 'customer_wallet:';

-- The kinds of proven transfers that change a wallet: each must have a line in the bill.
create table proven_wallet_kinds (
  kind TEXT not null primary key
) STRICT;

-- Corrections by an operator, for their hourly proof.
create index transfers_of_corrections on transfers (id, amount_ucents) where substr(kind, 1, 11) = 'correction.';
