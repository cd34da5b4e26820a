-- Changes that were cancelled are many if somebody makes them so, and newer than the rest: reading the other ones must not walk over them.
drop index payout_destinations_of_supplier;
create index payout_destinations_living on payout_destinations (supplier_id, in_force_ms, id) where cancelled_ms is null;
-- The changes of a day.
create index payout_destinations_requested on payout_destinations (supplier_id, requested_ms);
-- What is old enough to be forgotten.
create index payout_destinations_cancelled on payout_destinations (cancelled_ms) where cancelled_ms is not null;
