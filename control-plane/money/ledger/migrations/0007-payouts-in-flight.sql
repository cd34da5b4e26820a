-- Payouts that came back, and all transfers of payouts for their hourly proof.
create index transfers_payouts_failed on transfers (credit_account_id, posted_ms, id) where kind = 'payout.failed';
create index transfers_of_payouts on transfers (id, amount_ucents) where substr(kind, 1, 6) = 'payout';
-- Nobody pages through them any more: a payout has a row in money/payouts.
drop index transfers_payouts_by_time;
