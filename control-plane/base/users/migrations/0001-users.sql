-- People, how they prove who they are, the organisations that they belong to, and their sessions. Secrets are hashed or sealed.
create table users (
  id TEXT not null primary key,
  -- The address in lower case.
  email TEXT not null unique,
  name TEXT not null,
  is_operator INTEGER not null,
  -- 1 if the operator has given the account to the person. The address of any other account is only what somebody has typed.
  is_vouched INTEGER not null,
  created_ms INTEGER not null
) STRICT;
create index users_by_time on users (created_ms, id);

create table members (
  org_id TEXT not null references orgs (id),
  user_id TEXT not null references users (id),
  role TEXT not null,
  created_ms INTEGER not null,
  primary key (org_id, user_id)
) STRICT;
create index members_page on members (org_id, created_ms, user_id);
create index members_user on members (user_id);

create table credentials (
  id TEXT not null primary key,
  user_id TEXT not null references users (id),
  -- password, totp, passkey or oidc
  kind TEXT not null,
  name TEXT not null,
  -- the id of a passkey, which its authenticator has given; provider and subject of OpenID; null for the other kinds
  external_id TEXT unique,
  -- the hash of a password, the sealed secret of TOTP, the public key of a passkey
  secret TEXT not null,
  -- the last time step of TOTP that was used, the signature counter of a passkey
  counter INTEGER not null,
  -- a list of transports, as JSON
  transports TEXT not null,
  -- null until TOTP was proved with a first code
  confirmed_ms INTEGER,
  created_ms INTEGER not null,
  used_ms INTEGER
) STRICT;
create index credentials_user on credentials (user_id, kind);

create table recovery_codes (
  -- SHA-256 in hex, of the code and its owner; the codes carry 80 random bits
  code_hash TEXT not null primary key,
  user_id TEXT not null references users (id),
  created_ms INTEGER not null
) STRICT;
create index recovery_codes_user on recovery_codes (user_id);

create table sessions (
  -- the principal of its requests
  id TEXT not null primary key,
  user_id TEXT not null references users (id),
  org_id TEXT,
  -- SHA-256 in hex. The tokens carry 256 random bits.
  token_hash TEXT not null unique,
  client_ip TEXT not null,
  -- the /64 of an IPv6 address
  network TEXT not null,
  user_agent TEXT not null,
  -- 1: a second factor or a passkey was shown
  is_strong INTEGER not null,
  confirmed_ms INTEGER not null,
  created_ms INTEGER not null,
  used_ms INTEGER not null,
  expires_ms INTEGER not null
) STRICT;
create index sessions_user on sessions (user_id, created_ms);
create index sessions_by_end on sessions (expires_ms);

-- Each row is a network from which a person has signed in. It stays open for that person while strangers try passwords.
create table known_networks (
  user_id TEXT not null references users (id),
  network TEXT not null,
  used_ms INTEGER not null,
  primary key (user_id, network)
) STRICT;
create index known_networks_by_time on known_networks (used_ms);

-- Failed tries to sign in, by account and network, account, and network.
create table sign_in_failures (
  -- SHA-256 in hex: people type passwords into the wrong field
  subject TEXT not null primary key,
  failures INTEGER not null,
  -- no further try before this
  next_ms INTEGER not null,
  updated_ms INTEGER not null
) STRICT;
create index sign_in_failures_by_time on sign_in_failures (updated_ms);

-- Links that the operator makes: the first password of a person, or a new one after lost access.
create table user_links (
  token_hash TEXT not null primary key,
  user_id TEXT not null references users (id),
  created_ms INTEGER not null,
  expires_ms INTEGER not null
) STRICT;
create index user_links_by_end on user_links (expires_ms);

create table invitations (
  id TEXT not null primary key,
  org_id TEXT not null references orgs (id),
  role TEXT not null,
  -- the person who made it; null: an API key of the organisation
  user_id TEXT,
  -- the person for whom it is meant; null: for whoever has the link
  email TEXT,
  token_hash TEXT not null unique,
  -- the principal that made it
  made_by TEXT not null,
  created_ms INTEGER not null,
  expires_ms INTEGER not null
) STRICT;
create index invitations_page on invitations (org_id, created_ms, id);
create index invitations_by_end on invitations (expires_ms);

-- Challenges that a passkey has signed. Each works once; it is sealed, so that those nobody signs need no row.
create table used_challenges (
  challenge TEXT not null primary key,
  expires_ms INTEGER not null
) STRICT;
create index used_challenges_by_end on used_challenges (expires_ms);

-- Programs that wait for a person to approve them (RFC 8628). Both codes are hashes.
create table device_logins (
  id TEXT not null primary key,
  device_hash TEXT not null unique,
  user_code_hash TEXT not null unique,
  host TEXT not null,
  client_ip TEXT not null,
  network TEXT not null,
  -- a list of scopes as JSON
  scopes TEXT not null,
  -- pending, approved, denied
  state TEXT not null,
  -- who has approved it, and for which organisation
  user_id TEXT,
  org_id TEXT,
  polled_ms INTEGER,
  interval_ms INTEGER not null,
  created_ms INTEGER not null,
  expires_ms INTEGER not null
) STRICT;
create index device_logins_network on device_logins (network, expires_ms);
create index device_logins_by_end on device_logins (expires_ms);
