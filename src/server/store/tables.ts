// The migrations: 1 makes every table. Ids are never used twice. Times are milliseconds since 1970, truth values 0 and 1, JSON
// is text; SERIAL_ID, KEY_ID, INT, BYTES and STRICT are adapted to the database by migrations.ts.

const people = [
  `CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT`,
  `CREATE TABLE notices (id SERIAL_ID, channel TEXT NOT NULL, payload TEXT NOT NULL, created_at INT NOT NULL) STRICT`,
  `CREATE TABLE organizations (
    id SERIAL_ID,
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    network TEXT NOT NULL,
    network6 TEXT,
    config_version INT NOT NULL DEFAULT 1,
    last_version INT NOT NULL DEFAULT 1,
    certificate_version TEXT NOT NULL DEFAULT '1' CHECK (certificate_version IN ('1', 'both', '2')),
    alive_interval INT CHECK (alive_interval BETWEEN 1 AND 30),
    config_overrides TEXT NOT NULL DEFAULT '{}',
    order_key_sealed TEXT NOT NULL,
    order_public TEXT NOT NULL,
    order_key_proof TEXT,
    rotation_phase TEXT NOT NULL DEFAULT 'none' CHECK (rotation_phase IN ('none', 'trust', 'issue', 'retire')),
    rotation_paused INT NOT NULL DEFAULT 0,
    rotation_auto INT NOT NULL DEFAULT 1,
    rotation_version INT,
    next_host INT NOT NULL DEFAULT 1,
    created_at INT NOT NULL,
    deleted_at INT
  ) STRICT`,
  `CREATE UNIQUE INDEX organizations_slug ON organizations (slug) WHERE deleted_at IS NULL`,
  // An account with a home organization was made by an invitation and belongs to that organization alone.
  // What was signed before sessions_from no longer counts (password change, disabling).
  `CREATE TABLE users (
    id SERIAL_ID,
    email TEXT NOT NULL UNIQUE,
    password_hash TEXT NOT NULL,
    is_staff INT NOT NULL DEFAULT 0,
    is_active INT NOT NULL DEFAULT 1,
    home_org_id INT REFERENCES organizations (id),
    sessions_from INT NOT NULL DEFAULT 0,
    created_at INT NOT NULL,
    last_login_at INT
  ) STRICT`,
  // Without user_id it is an invitation that waits: the secret's hash is what its link opens it with.
  `CREATE TABLE memberships (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    email TEXT NOT NULL,
    user_id INT REFERENCES users (id),
    role TEXT NOT NULL CHECK (role IN ('member', 'admin', 'owner')),
    secret_hash TEXT UNIQUE,
    expires_at INT,
    created_at INT NOT NULL,
    UNIQUE (org_id, email)
  ) STRICT`,
  `CREATE INDEX memberships_user ON memberships (user_id)`,
  `CREATE TABLE refresh_tokens (
    jti_hash TEXT PRIMARY KEY,
    family TEXT NOT NULL,
    user_id INT NOT NULL REFERENCES users (id),
    expires_at INT NOT NULL,
    used_at INT,
    revoked_at INT
  ) STRICT`,
  `CREATE INDEX refresh_tokens_family ON refresh_tokens (family)`,
  `CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id)`,
  `CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_at)`,
  `CREATE TABLE service_tokens (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('member', 'admin')),
    token_hash TEXT NOT NULL UNIQUE,
    expires_at INT,
    created_by INT REFERENCES users (id),
    created_at INT NOT NULL,
    revoked_at INT
  ) STRICT`,
  `CREATE INDEX service_tokens_org ON service_tokens (org_id, id)`,
];

const nodes = [
  `CREATE TABLE authorities (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    kind TEXT NOT NULL CHECK (kind IN ('overlay', 'x509')),
    version INT NOT NULL DEFAULT 1,
    fingerprint TEXT NOT NULL,
    certificate TEXT NOT NULL,
    private_key_sealed TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('next', 'active', 'former')),
    not_before INT NOT NULL,
    not_after INT NOT NULL,
    created_at INT NOT NULL
  ) STRICT`,
  `CREATE INDEX authorities_org ON authorities (org_id, state)`,
  `CREATE TABLE nodes (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    ip TEXT NOT NULL,
    ip6 TEXT,
    state TEXT NOT NULL CHECK (state IN ('pending', 'active', 'revoked')),
    mode TEXT,
    is_lighthouse INT NOT NULL DEFAULT 0,
    is_relay INT NOT NULL DEFAULT 0,
    public_ip TEXT,
    external_port INT,
    listen_port INT,
    host_public_key TEXT,
    csr TEXT,
    csr_key_sha256 TEXT,
    groups TEXT NOT NULL DEFAULT '[]',
    subnets TEXT NOT NULL DEFAULT '[]',
    config_overrides TEXT NOT NULL DEFAULT '{}',
    token_hash TEXT UNIQUE,
    registered_with INT,
    platform TEXT,
    agent_version TEXT,
    overlay_version TEXT,
    confirmed_config_version INT NOT NULL DEFAULT 0,
    own_version INT NOT NULL DEFAULT 1,
    renew_at INT,
    created_at INT NOT NULL,
    registered_at INT,
    revoked_at INT,
    revoked_by TEXT,
    revoke_reason TEXT,
    order_seq INT NOT NULL DEFAULT 0,
    order_jws TEXT
  ) STRICT`,
  `CREATE UNIQUE INDEX nodes_name ON nodes (org_id, name) WHERE state <> 'revoked'`,
  // The pages of the list, and its length.
  `CREATE INDEX nodes_listed ON nodes (org_id, id) WHERE state <> 'revoked'`,
  `CREATE INDEX nodes_host_key ON nodes (host_public_key) WHERE host_public_key IS NOT NULL`,
  `CREATE INDEX nodes_confirmed ON nodes (org_id, state, confirmed_config_version)`,
  `CREATE INDEX nodes_special ON nodes (org_id) WHERE is_lighthouse = 1 OR is_relay = 1 OR subnets <> '[]'`,
  // What a node said last, apart from its wide row because it is written all the time.
  `CREATE TABLE sightings (
    node_id KEY_ID,
    last_checkin_at INT NOT NULL,
    reported_version TEXT,
    uptime INT,
    overlay_state TEXT,
    applied_config_version INT
  ) STRICT`,
  // Every host number below next_host, and those above it that were asked for. With a node it is taken; with
  // held_until too, its node has left it, and it is free again once every active node has confirmed held_version, or
  // the certificate that names it is over. Without a node it is free.
  `CREATE TABLE addresses (
    org_id INT NOT NULL REFERENCES organizations (id),
    host INT NOT NULL,
    node_id INT REFERENCES nodes (id),
    held_version INT,
    held_until INT,
    PRIMARY KEY (org_id, host)
  ) STRICT`,
  `CREATE INDEX addresses_node ON addresses (node_id)`,
  `CREATE INDEX addresses_free ON addresses (org_id, host) WHERE node_id IS NULL`,
  `CREATE INDEX addresses_held ON addresses (org_id) WHERE held_until IS NOT NULL`,
  `CREATE TABLE certificates (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    node_id INT NOT NULL REFERENCES nodes (id),
    authority_id INT NOT NULL REFERENCES authorities (id),
    kind TEXT NOT NULL CHECK (kind IN ('overlay', 'x509')),
    version INT NOT NULL,
    fingerprint TEXT NOT NULL,
    twin TEXT,
    pem TEXT NOT NULL,
    not_before INT NOT NULL,
    not_after INT NOT NULL,
    renew_at INT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('current', 'former', 'blocked')),
    block_after INT,
    block_version INT,
    blocked_at INT,
    blocked_at_version INT,
    created_at INT NOT NULL
  ) STRICT`,
  `CREATE INDEX certificates_node ON certificates (node_id, state)`,
  `CREATE UNIQUE INDEX certificates_fingerprint ON certificates (fingerprint)`,
  `CREATE INDEX certificates_blocked ON certificates (org_id, not_after) WHERE state = 'blocked'`,
  `CREATE INDEX certificates_former ON certificates (block_after) WHERE state = 'former' AND block_after IS NOT NULL`,
  `CREATE TABLE registration_tokens (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    name TEXT,
    token_hash TEXT NOT NULL UNIQUE,
    uses INT NOT NULL,
    used INT NOT NULL DEFAULT 0,
    groups TEXT NOT NULL DEFAULT '[]',
    is_lighthouse INT NOT NULL DEFAULT 0,
    node_id INT REFERENCES nodes (id),
    expires_at INT NOT NULL,
    created_by INT REFERENCES users (id),
    created_at INT NOT NULL,
    revoked_at INT,
    CHECK (used <= uses)
  ) STRICT`,
  `CREATE INDEX registration_tokens_org ON registration_tokens (org_id, id)`,
  // Tokens of nodes that were replaced: known, so that using one is no guess.
  `CREATE TABLE retired_tokens (token_hash TEXT PRIMARY KEY, retired_at INT NOT NULL) STRICT`,
  `CREATE TABLE node_groups (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    name TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    created_at INT NOT NULL,
    UNIQUE (org_id, name)
  ) STRICT`,
  `CREATE TABLE firewall_rules (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    direction TEXT NOT NULL CHECK (direction IN ('inbound', 'outbound')),
    protocol TEXT NOT NULL CHECK (protocol IN ('any', 'tcp', 'udp', 'icmp')),
    ports TEXT NOT NULL,
    peer TEXT NOT NULL,
    target TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    created_at INT NOT NULL
  ) STRICT`,
  `CREATE INDEX firewall_rules_org ON firewall_rules (org_id, id)`,
];

const operation = [
  // Append-only; each row's hash covers the one before it.
  `CREATE TABLE events (
    id SERIAL_ID,
    org_id INT REFERENCES organizations (id),
    at INT NOT NULL,
    type TEXT NOT NULL,
    actor TEXT NOT NULL,
    subject TEXT NOT NULL,
    before TEXT,
    after TEXT,
    hash TEXT NOT NULL
  ) STRICT`,
  `CREATE INDEX events_org ON events (org_id, id)`,
  `CREATE TABLE webhooks (
    id SERIAL_ID,
    org_id INT NOT NULL REFERENCES organizations (id),
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    secret_sealed TEXT NOT NULL,
    created_at INT NOT NULL,
    deleted_at INT
  ) STRICT`,
  `CREATE TABLE deliveries (
    id SERIAL_ID,
    webhook_id INT NOT NULL REFERENCES webhooks (id),
    event_id INT NOT NULL REFERENCES events (id),
    attempts INT NOT NULL DEFAULT 0,
    next_at INT,
    status INT,
    message TEXT,
    delivered_at INT,
    created_at INT NOT NULL
  ) STRICT`,
  `CREATE INDEX deliveries_due ON deliveries (next_at) WHERE next_at IS NOT NULL`,
  `CREATE INDEX deliveries_webhook ON deliveries (webhook_id, id)`,
];

export const firstTables: readonly string[] = [...people, ...nodes, ...operation];

/** Migration 2: webhooks follow the events by a cursor, and each expiring certificate is told of once. */
export const followers: readonly string[] = [
  `ALTER TABLE webhooks ADD COLUMN seen_event_id INT NOT NULL DEFAULT 0`,
  `CREATE INDEX webhooks_org ON webhooks (org_id) WHERE deleted_at IS NULL`,
  `ALTER TABLE certificates ADD COLUMN expiring_told_at INT`,
  // Also what the metrics count by.
  `CREATE INDEX certificates_expiring ON certificates (not_after, expiring_told_at, org_id)
     WHERE state = 'current' AND kind = 'overlay'`,
];
