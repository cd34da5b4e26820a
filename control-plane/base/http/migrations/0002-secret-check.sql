-- A known word sealed under the server's secret: it tells a database that has come without its secret.
create table secret_checks (
  id INTEGER not null primary key check (id = 1),
  sealed TEXT not null
) STRICT;
