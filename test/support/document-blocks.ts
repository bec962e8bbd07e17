// How each sh block of the documents is run by test/e2e/documents.test.ts, in this order, or why it is not. The key is
// the block's file and first line.

export type Machine = "control" | "web" | "laptop";

export type BlockRun =
  | {
      on: Machine;
      /** What a reader has done before. */
      before?: string;
      /** What is so afterwards. */
      after?: string;
      /** What differs on a test's machine. */
      replace?: readonly (readonly [RegExp, string])[];
    }
  /** All of its lines are in another block. */
  | { sameAs: string }
  /** Only its commands and flags are checked. */
  | { not: string };

const start = "docs/getting-started.md:";
const register =
  "agent register --api-base https://control.example.org --org-slug acme --registration-token-file token";
const setup = "agent setup --yes --public-name control.example.org --email you@example.org --org-slug acme";
const serves = "until agent checkin; do sleep 0.2; done; systemctl is-active overlay-agent-control";

const notHere = (not: string, keys: readonly string[]) =>
  Object.fromEntries(keys.map((key) => [key, { not }]));

export const blockRuns: Readonly<Record<string, BlockRun>> = {
  [`${start} ${setup}`]: { on: "control" },
  [`README.md: ${setup}`]: { sameAs: `${start} ${setup}` },
  [`${start} agent admin user password you@example.org`]: {
    on: "control",
    replace: [[/$/, " --password-file /root/password"]],
  },
  [`${start} agent up oaj1KEY`]: { on: "web" },
  "README.md: curl -fsSL https://control.example.org/install | sh": {
    not: "it needs a release; test/e2e/two-lines.test.ts types both lines as setup printed them",
  },
  [`${start} agent admin token create acme`]: { on: "control", replace: [[/$/, " >token"]] },
  [`docs/machines.md: ${register} --dry-run`]: { on: "laptop" },
  "docs/machines.md: usermod --append --groups overlay-agent ada": {
    on: "laptop",
    before: "useradd ada && agent up oaj1KEY --mode desktop",
  },
  "docs/blocked-udp.md: agent sync-config --org-slug acme --tcp-fallback :443": {
    not: "test/e2e/tcp-fallback.test.ts does it at the registration",
  },
  "docs/blocked-udp.md: agent sync-config --org-slug acme --no-tcp": {
    not: "test/e2e/tcp-fallback.test.ts does it on a node without UDP",
  },
  "docs/blocked-udp.md: agent admin org update acme --port-mapping off": { on: "control" },
  "docs/blocked-udp.md: agent sync-config --org-slug acme --no-port-mapping": {
    not: "test/e2e/port-mapping.test.ts does it on a node behind a router that maps ports",
  },
  "docs/access.md: agent up --key-file join-key --public-ip lighthouse2.example.org": {
    not: "test/e2e/joining.test.ts makes a second lighthouse",
  },
  [`${start} ping -c 3 10.77.0.1`]: { on: "web" },
  "README.md: ping -c 3 10.77.0.1": { sameAs: `${start} ping -c 3 10.77.0.1` },
  ...notHere("test/e2e/route-sites.test.ts types it", [
    "docs/exits.md: sudo agent up --advertise-exit",
    "docs/exits.md: agent admin node update acme laptop --add-group staff",
    "docs/exits.md: agent exit list",
    "docs/exits.md: sudo agent exit use off",
    "docs/access.md: agent up acme --advertise 192.168.1.0/24@192.168.1.10+masquerade",
    "docs/access.md: agent up acme --advertise 10.202.1.0/24=192.168.1.0/24@192.168.1.10+masquerade",
    "docs/access.md: agent admin route create acme 192.168.1.0/24 --via office1-a --via office1-b",
    "docs/access.md: ping -c 3 192.168.1.10",
  ]),
  ...notHere("test/cli/seal.test.ts signs with ssh-keygen", [
    "docs/security.md: agent admin seal review acme --known 5f0c9a2b7d31e486 > acme-2.seal",
  ]),
  ...notHere("test/e2e/seal-signing.test.ts types it on a terminal", [
    "docs/security.md: agent admin seal init acme --observe --signer ~/.ssh/id_ed25519.pub > acme-1.seal",
    "docs/security.md: agent admin seal ca acme acme-offline.key",
    "docs/security.md: agent admin seal sign acme --ca acme-offline.key --key ~/.ssh/id_ed25519 --known acme-1.seal --privileged db",
    "docs/security.md: agent admin ca rotate acme --limited",
    "docs/security.md: agent admin seal sign acme --ca acme-offline.key --key ~/.ssh/id_ed25519 --enforce",
    "docs/security.md: agent admin seal sign acme --ca acme-offline.key --key ~/.ssh/id_ed25519",
  ]),
  ...notHere("test/e2e/rollouts.test.ts updates nodes in rings", [
    "docs/rollouts.md: sudo agent sync-config --org-slug acme --allow-updates agent,engine",
    "docs/rollouts.md: agent admin rollout create acme --engine 1.12.0",
    "docs/rollouts.md: agent admin rollout list acme",
  ]),
  ...notHere("test/e2e/settings-in-rings.test.ts changes settings in rings", [
    `docs/rollouts.md: echo '{"tun":{"mtu":1400}}' | agent admin rollout create acme --settings -`,
  ]),
  ...notHere("test/e2e/drills.test.ts takes a lighthouse away", [
    "docs/rollouts.md: agent admin drill lighthouse-away acme --for 60s",
  ]),
  // While all is well: later blocks close ports, and make this machine a router that may not forward.
  "docs/troubleshooting.md: agent doctor": { on: "web" },
  "docs/troubleshooting.md: agent doctor --bundle report.tar.gz": { on: "web" },
  [`${start} agent admin rule create acme --protocol tcp --ports 22 --description ssh`]: { on: "control" },
  "docs/access.md: agent admin policy test acme laptop web tcp/22": { on: "control" },

  "docs/production.md: bun build.ts --image": {
    not: "test/e2e/image.test.ts runs the image without Docker",
  },
  "docs/acme.md: agent serve --listen 0.0.0.0:443 --tls acme --public-url https://control.example.org": {
    not: "test/e2e/acme.test.ts runs it against a test authority",
  },
  "docs/acme.md: agent setup --tls acme --acme-directory https://ca.example.org/acme/acme/directory --acme-ca root_ca.crt --tls-ca root_ca.crt":
    { not: "test/e2e/setup-acme.test.ts runs it against a test authority" },
  "docs/acme.md: agent serve --listen 0.0.0.0:443 --tls acme --public-url https://control.example.org (2)": {
    not: "test/e2e/acme.test.ts runs it against a test authority",
  },
  "docs/several-servers.md: export PGPASSWORD=replicator-password": {
    not: "test/e2e/failover.test.ts runs it",
  },
  "docs/several-servers.md: agent serve --listen 192.0.2.2:8420 --allow-plain-http --trusted-proxy 192.0.2.1/32 --public-url https://control.example.org --data-dir /var/lib/overlay-agent/server --database-url-file /etc/overlay-agent-database":
    { not: "test/e2e/failover.test.ts runs it on each server" },
  'docs/access.md: agent admin group create acme web --description "web servers"': { on: "control" },
  "docs/access.md: agent admin rule create acme --protocol tcp --ports 5432 --peer group:web --target group:db":
    {
      on: "control",
    },
  "docs/policy.md: agent admin policy get acme >policy.yaml": { on: "control" },
  "docs/policy.md: agent admin org update acme --flows on": { on: "control" },
  "docs/policy.md: agent admin flow list acme --since 24h": { on: "control" },
  "docs/policy.md: agent admin policy propose acme --since 30d >proposed.yaml": { on: "control" },
  "docs/policy.md: agent admin policy test acme policy.yaml --prune": {
    on: "control",
    // An earlier block has deleted the rule for ping, and created this one.
    replace: [[/lighthouse web icmp/, "laptop web tcp/22"]],
  },
  "docs/policy.md: agent admin policy apply acme policy.yaml --prune --confirm 10m": { on: "control" },
  "docs/policy.md: agent admin policy get acme --at 2026-03-01T12:00Z": {
    not: "test/server/history/reports.test.ts asks about moments of its own",
  },
  "docs/policy.md: agent admin policy test acme any db tcp/5432 --at 2026-03-01T12:00Z --head HASH --report db.report":
    { not: "test/server/history/reports.test.ts verifies reports" },
  "docs/policy.md: agent admin policy import --from headscale acl.hujson >policy.yaml": {
    on: "control",
    before: "echo '{\"acls\": []}' >acl.hujson",
  },
  "docs/policy.md: agent admin service-token create acme policy-plan --role member": {
    not: "test/e2e/policy-files.test.ts runs the workflows with such tokens",
  },
  "docs/access.md: agent admin token create acme --lighthouse": { on: "control" },
  "docs/api.md: ACCESS_TOKEN=$(curl --fail --silent --cacert /etc/overlay-agent/acme/api-ca.crt \\": {
    on: "control",
    replace: [
      [/your password/, "correct horse battery"],
      [/$/, '\necho "$$ACCESS_TOKEN" >access-token'],
    ],
  },
  "docs/administration.md: agent login --api-base https://control.example.org --ca-fingerprint sha256:FINGERPRINT":
    {
      on: "control",
      replace: [[/FINGERPRINT$/m, "FINGERPRINT --email you@example.org --password-file /root/password"]],
    },
  "docs/administration.md: agent admin factor add": {
    not: "the code comes from an app; test/cli/admin-remote.test.ts runs both lines",
  },
  "docs/administration.md: agent admin oidc create Company https://login.example.org --client-id agent --client-secret-file secret --users create --domain example.org --role net-admins=acme:admin":
    { not: "there is no such provider; test/cli/admin-oidc.test.ts has a real one" },
  "docs/administration.md: agent admin oidc create Company https://login.example.org --org acme --client-id agent --client-secret-file secret --role net-admins=admin --role staff=member":
    { not: "there is no such provider; test/cli/admin-domain.test.ts has a real one" },
  "docs/stolen-laptop.md: agent admin node revoke acme laptop --reason stolen": {
    not: "test/cli/session-machine.test.ts steals a laptop",
  },
  "docs/stolen-laptop.md: agent admin session list --org acme --user ada@example.org": {
    not: "test/cli/session-machine.test.ts signs a member out",
  },
  "docs/stolen-laptop.md: agent admin events acme --lines 100": { on: "control" },
  "docs/administration.md: agent logout": { on: "control" },
  "docs/machines.md: agent admin token create acme --ephemeral --uses 10000 --expires 30d --group ci": {
    on: "control",
  },
  "docs/access.md: agent admin node transfer acme laptop --to ada@example.org": {
    not: "test/cli/golden-admin.test.ts runs it; the machines of this walk have no user Ada",
  },
  "docs/access.md: agent admin rule create acme --protocol tcp --ports 22 --peer user:ada@example.org --target group:web":
    {
      not: "test/cli/owner-rules.test.ts runs it; the machines of this walk have no user Ada",
    },
  "docs/access.md: agent admin rule create acme --protocol tcp --ports 22 --peer self --target any": {
    on: "control",
  },
  "docs/access.md: agent admin org update acme --approval all": { on: "control" },
  "docs/access.md: agent admin org update acme --self-enrollment members": { on: "control" },
  "docs/access.md: agent admin org update acme --reauthenticate 90": { on: "control" },
  "docs/access.md: agent up https://control.example.com": {
    not: "test/e2e/browser-joining.test.ts runs it with a browser",
  },
  "docs/access.md: agent admin registration list acme": {
    not: "test/cli/approval.test.ts runs these; no machine of this walk waits",
  },
  "docs/access.md: agent admin registration list acme --approved": {
    not: "test/cli/approval.test.ts runs these; no machine of this walk waits",
  },
  "docs/access.md: agent admin node update acme web --add-group db --remove-group web": {
    on: "control",
    after: "agent admin node show acme web | grep db",
  },
  "docs/access.md: agent admin relay limit acme hub 500GB": {
    not: "test/e2e/relayed-bytes.test.ts limits a relay",
  },
  "docs/access.md: agent up acme --advertise 192.168.7.0/24@192.168.7.1+masquerade": { on: "web" },
  "docs/access.md: agent admin route list acme": {
    on: "control",
    after: "until ip route show table all | grep 192.168.7.0/24; do sleep 0.1; done",
  },
  "docs/access.md: agent admin route create acme 192.168.7.0/24 --via router1 --via router2": {
    not: "test/e2e/route-failover.test.ts has two routers; this walk has none more",
  },
  "docs/access.md: agent up acme --advertise 10.201.1.0/24=192.168.1.0/24+masquerade": {
    not: "test/e2e/route-sites.test.ts translates; machines of tests may not write to /proc/sys",
  },
  "docs/access.md: agent admin rule create acme --peer group:staff --target network:192.168.7.0/24 --protocol tcp --ports 443":
    { on: "control" },

  "docs/machines.md: agent status": { on: "laptop" },
  "docs/machines.md: agent sync-config": { on: "web" },
  "docs/machines.md: agent sync-config --org-slug acme --allow-routes 203.0.113.0/24": { on: "web" },
  "docs/machines.md: agent overlay check": {
    not: "it needs releases of the engine; test/e2e/overlay-install.test.ts has them",
  },
  "docs/machines.md: agent self-update --check": {
    not: "it needs signed releases; test/e2e/self-update.test.ts has them",
  },
  'docs/daemon-protocol.md: echo \'{"action":"status","id":1}\' | socat - UNIX-CONNECT:/var/run/overlay-agent/cmd.sock':
    {
      not: "machines of tests have no socat; test/e2e/daemon-socket.test.ts sends such lines",
    },

  "docs/certificates.md: agent admin ca rotate acme": { on: "control" },
  "docs/certificates.md: agent admin ca rotate acme --pause": { on: "control" },
  "docs/certificates.md: agent admin ca rotate acme --now": { on: "control" },
  "docs/certificates.md: agent admin org update acme --ca-rotation manual": { on: "control" },
  "docs/certificates.md: agent admin org update acme --network6 fd77::/64": {
    not: "the engine of tests' machines is too old; test/e2e/certificate-versions.test.ts takes newer ones",
  },
  "docs/certificates.md: agent admin node list acme --certificates": { on: "control" },
  "docs/certificates.md: cd /etc/overlay-agent/acme": {
    on: "web",
    replace: [
      [/(openssl .*)$/, "$1 </dev/zero >/dev/null & server=$!\nsleep 1"],
      [
        /$/,
        "\nopenssl s_client -connect 127.0.0.1:8443 -cert node.crt -key node.key -CAfile node.crt" +
          " -verify_return_error </dev/null\nkill $$server",
      ],
    ],
  },

  "docs/production.md: mv /var/lib/overlay-agent/server /root/control-plane.old": {
    not: "the walk goes on with this data",
  },
  "docs/production.md: systemctl restart overlay-agent-control": { on: "control", after: serves },
  "docs/production.md: agent admin clock confirm": { on: "control" },
  "docs/production.md: agent admin backup /var/backups/control-$(date +%F).db": { on: "control" },
  "docs/production.md: systemctl stop overlay-agent-control": {
    on: "control",
    replace: [
      [/control$/m, "control && rm /var/lib/overlay-agent/server/control.db*"],
      [/2026-11-22/, "$$(date +%F)"],
    ],
    after: serves,
  },
  "docs/production.md: agent admin node update acme control --public-ip 192.0.2.1": {
    on: "control",
    replace: [[/192\.0\.2\.1/, "$$(getent hosts control.example.org | cut -d ' ' -f 1)"]],
  },
  "docs/production.md: agent admin token create acme --lighthouse --expires 1h": {
    not: "it needs another machine; test/e2e/joining.test.ts makes a second lighthouse",
  },
  "docs/production.md: curl -fsSL --cacert /etc/overlay-agent/acme/api-ca.crt https://control.example.org/install -o install":
    {
      not: "it needs a release; test/e2e/two-lines.test.ts uninstalls by it",
    },
  "docs/production.md: agent admin node revoke acme NAME": {
    not: "test/e2e/revocation.test.ts does it after a restore",
  },
  "docs/production.md: systemctl disable --now overlay-agent-control": { on: "control" },
  // The same machine, without its data: the name leads here.
  "docs/production.md: install -d -m 0700 /var/lib/overlay-agent/server": {
    on: "control",
    before:
      "cp /var/lib/overlay-agent/server/secret.key /root/ && mv /etc/overlay-agent/control-plane.toml /root/ && " +
      "mv /var/lib/overlay-agent/server /root/former",
    after: serves,
  },
  "docs/production.md: agent admin key rotate": { on: "control", after: serves },
  "docs/production.md: agent admin member create acme ada@example.org --role admin": {
    on: "control",
    before: "agent admin user create ada@example.org --password-file /root/password",
  },
  "docs/production.md: agent admin user disable ada@example.org --revoke-tokens": { on: "control" },
  "docs/production.md: agent admin audit verify --archive /var/lib/overlay-agent/server/archive/events-1-1-2000.jsonl":
    { not: "the first archive is made after 400 days" },
  "docs/production.md: KEY=PUBLIC_KEY_IN_HEX FILE=events-1-1-2000.jsonl": {
    not: "test/server/retention/archive.test.ts runs it on a new archive",
  },
  "docs/production.md: agent admin audit verify": { on: "control" },
  "docs/production.md: agent admin backup /var/backups/move.db": {
    not: "it needs PostgreSQL; test/e2e/postgres-replicas.test.ts moves there by the same commands",
  },
  "docs/production.md: agent admin backup /var/backups/before-upgrade.db": {
    not: "it builds from source; test/e2e/install-machine.test.ts upgrades a machine",
  },
  "docs/production.md: minisign -G -W -p release.pub -s release.key": {
    not: "it builds for all systems; test/e2e/release.test.ts makes a release",
  },
  'docs/production.md: sh dist/release/install --release-url "$PWD/dist/release"': {
    not: "it needs a release; test/e2e/two-lines.test.ts installs a control plane from one",
  },

  "docs/moving.md: agent admin rule create acme --protocol tcp --ports 22 --peer group:admins": {
    on: "control",
  },
  "docs/moving.md: agent admin export acme /root/acme-plain --passphrase-file passphrase": {
    on: "control",
    before: "echo a long enough passphrase >passphrase",
  },
  "docs/moving.md: agent admin import acme /root/nebula --owner you@example.org": {
    on: "control",
    before: `mkdir nebula && cd nebula && nebula-cert ca -name handmade
      nebula-cert sign -name web1 -ip 10.88.0.1/24 && nebula-cert sign -name lighthouse -ip 10.88.0.2/24`,
    replace: [[/acme/g, "handmade"]],
  },
  "docs/moving.md: systemctl disable --now nebula": {
    not: "it needs an imported network; test/e2e/plain-files.test.ts registers its machines",
  },

  [`${start} agent admin node revoke acme laptop --reason stolen`]: { on: "control" },
  [`${start} agent admin node restore acme laptop`]: { on: "control" },
  "docs/troubleshooting.md: agent admin node restore acme laptop": {
    sameAs: `${start} agent admin node restore acme laptop`,
  },
  "docs/machines.md: agent unregister --org-slug acme": { on: "laptop" },

  "README.md: sh install --from-source && agent demo --yes": {
    not: "test/soak/fresh-debian.test.ts types it on a Debian that has nothing but Node",
  },
  [`${start} sh install --from-source`]: {
    not: "test/soak/fresh-debian.test.ts types it on a Debian that has nothing but Node",
  },
  [`${start} curl -fsSL https://control.example.org/install | sh`]: {
    not: "it needs a release; test/e2e/two-lines.test.ts types the line that setup printed",
  },
  "README.md: npx --yes bun@1.4.4 run test": { not: "it is the run of all tests, this one among them" },
  "CONTRIBUTING.md: npx --yes bun@1.4.4 install --frozen-lockfile": {
    not: "the run of these tests began with it",
  },
  "CONTRIBUTING.md: bun test/bench/demo.ts picture": {
    not: "it writes pictures below docs/; test/e2e/demo.test.ts runs the demo, test/e2e/console*.test.ts the console",
  },
  "docs/platforms.md: sudo agent install-launchd": { not: "there is no Mac among the machines of tests" },
  "docs/platforms.md: agent install-tap": { not: "there is no Windows among the machines of tests" },
};
