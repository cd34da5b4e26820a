-- Pages of the payouts of all suppliers, in the order of time. Without it, a page would search all transfers for its payouts.
create index transfers_payouts_by_time on transfers (posted_ms, id) where kind = 'payout';
