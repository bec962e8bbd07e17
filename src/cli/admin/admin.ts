// The admin commands. Their files are loaded when one is called.

import { lazyCommand, type CommandTable, type Implementation } from "../command.ts";

const user = () => import("./users/user.ts");
const session = () => import("./users/session.ts");
const factor = () => import("./users/factor.ts");
const domain = () => import("./users/domain.ts");
const oidc = () => import("./users/oidc.ts");
const org = () => import("./org.ts");
const registration = () => import("./nodes/registration.ts");
const token = () => import("./users/token.ts");
const serviceToken = () => import("./users/service-token.ts");
const node = () => import("./nodes/node.ts");
const name = () => import("./nodes/name.ts");
const path = () => import("./nodes/path.ts");
const relay = () => import("./nodes/relay.ts");
const route = () => import("./nodes/route.ts");
const drill = () => import("./nodes/drill.ts");
const rollout = () => import("./nodes/rollout.ts");
const rule = () => import("./policy/rule.ts");
const flow = () => import("./policy/flow.ts");
const policy = () => import("./policy/policy.ts");
const seal = () => import("./seal/seals.ts");
const ca = () => import("./ca.ts");
const members = () => import("./users/members.ts");
const group = () => import("./group.ts");
const backup = () => import("./backup.ts");
const audit = () => import("./audit-verify.ts");
const server = () => import("./server.ts");
const webhook = () => import("./webhook.ts");
const plain = () => import("./export.ts");

/** Adds the flags that say on which control plane a command works. */
const adminCommand = <Name extends string>(
  description: string,
  file: () => Promise<Record<Name, Implementation>>,
  name: Name,
) =>
  lazyCommand(description, async () => {
    const { [name]: command } = await file();
    const { targetFlags } = await import("./target.ts");
    return { command: { ...command, args: { ...command.args, ...targetFlags } } };
  });

export const adminCommands: CommandTable = {
  "admin user create": adminCommand("Create a user", user, "create"),
  "admin user list": adminCommand("List the users", user, "list"),
  "admin user disable": adminCommand(
    "Disable a user: end their sessions and refuse sign-in",
    user,
    "disable",
  ),
  "admin user enable": adminCommand("Let a disabled user sign in again", user, "enable"),
  "admin user password": adminCommand(
    "Set a new password for a user and end their sessions",
    user,
    "password",
  ),
  "admin session list": adminCommand(
    "List the browsers and command lines in which you, or a member, are signed in",
    session,
    "list",
  ),
  "admin session revoke": adminCommand(
    "Sign out of a browser or command line, or a member of all",
    session,
    "revoke",
  ),
  "admin factor list": adminCommand("Show your second factors", factor, "list"),
  "admin factor add": adminCommand("Add an authenticator app as your second factor", factor, "add"),
  "admin factor remove": adminCommand("Remove your authenticator app", factor, "remove"),
  "admin factor codes": adminCommand(
    "Print new recovery codes; the former ones stop working",
    factor,
    "codes",
  ),
  "admin factor staff": adminCommand(
    "Require a second factor of all staff users, or make it optional",
    factor,
    "staff",
  ),
  "admin user reset-factors": adminCommand(
    "Remove all second factors of a user who lost them, and end their sessions",
    user,
    "resetFactors",
  ),
  "admin oidc list": adminCommand("List the providers of identities by which users sign in", oidc, "list"),
  "admin oidc create": adminCommand(
    "Let users sign in by a provider of identities (OpenID Connect)",
    oidc,
    "create",
  ),
  "admin oidc update": adminCommand(
    "Change who signs in by a provider of identities, and what its groups give",
    oidc,
    "update",
  ),
  "admin oidc delete": adminCommand("Delete a provider of identities", oidc, "remove"),
  "admin domain list": adminCommand(
    "List the domains of e-mail addresses that an organization has claimed",
    domain,
    "list",
  ),
  "admin domain create": adminCommand(
    "Claim a domain, so that the addresses that the organization's provider names there count",
    domain,
    "create",
  ),
  "admin domain check": adminCommand("Verify a claimed domain by its TXT record", domain, "check"),
  "admin domain vouch": adminCommand(
    "Verify a domain of an organization by the word of staff, without a record",
    domain,
    "vouch",
  ),
  "admin domain delete": adminCommand("Give a domain up: its addresses no longer count", domain, "remove"),
  "admin org create": adminCommand("Create an organization with its two CAs", org, "create"),
  "admin org update": adminCommand("Change the settings of an organization", org, "update"),
  "admin org list": adminCommand("List the organizations", org, "list"),
  "admin org show": adminCommand("Show an organization and its settings", org, "show"),
  "admin org delete": adminCommand("Delete an organization and revoke all its nodes", org, "remove"),
  "admin token create": adminCommand("Create a registration token; it is printed once", token, "create"),
  "admin token list": adminCommand("List the registration tokens, without the secrets", token, "list"),
  "admin token revoke": adminCommand("Revoke a registration token; nodes that used it stay", token, "revoke"),
  "admin registration list": adminCommand("List the machines that wait for approval", registration, "list"),
  "admin registration approve": adminCommand("Approve a machine that waits", registration, "approve"),
  "admin registration refuse": adminCommand("Refuse a machine that waits", registration, "refuse"),
  "admin service-token create": adminCommand(
    "Create a token for a program; it is printed once",
    serviceToken,
    "create",
  ),
  "admin service-token list": adminCommand(
    "List the tokens of programs, without the secrets",
    serviceToken,
    "list",
  ),
  "admin service-token revoke": adminCommand("Revoke the token of a program", serviceToken, "revoke"),
  "admin node list": adminCommand("List the nodes of an organization", node, "list"),
  "admin node show": adminCommand("Show one node", () => import("./nodes/node-show.ts"), "show"),
  "admin node create": adminCommand(
    "Create a node in advance; its machine claims it by registering",
    node,
    "create",
  ),
  "admin node update": adminCommand(
    "Change the name, address, groups, subnets, roles or overrides of a node",
    () => import("./nodes/node-update.ts"),
    "update",
  ),
  "admin node rename": adminCommand("Rename a node", node, "rename"),
  "admin node revoke": adminCommand("Revoke a node: the other nodes stop talking to it", node, "revoke"),
  "admin node delete": adminCommand("The same as node revoke", node, "revoke"),
  "admin node restore": adminCommand("Restore a revoked node", node, "restore"),
  "admin node renew": adminCommand("Renew the certificates of a node now", node, "renew"),
  "admin node transfer": adminCommand(
    "Give a node to a member, or to the organization",
    () => import("./nodes/node-transfer.ts"),
    "transfer",
  ),
  "admin name list": adminCommand(
    "List the aliases: further names of nodes, and names of addresses behind routers",
    name,
    "list",
  ),
  "admin name create": adminCommand("Create an alias; the nodes know it at once", name, "create"),
  "admin name delete": adminCommand("Delete an alias", name, "remove"),
  "admin path list": adminCommand("List how nodes reach their peers, as they reported last", path, "list"),
  "admin relay list": adminCommand(
    "List the relays, what they forwarded this month, and their limits",
    relay,
    "list",
  ),
  "admin relay limit": adminCommand("Set or remove the monthly limit of a relay", relay, "limit"),
  "admin rollout list": adminCommand("List the updates of nodes in rings", rollout, "list"),
  "admin rollout show": adminCommand("Show an update in rings, and what stopped it", rollout, "show"),
  "admin rollout create": adminCommand(
    "Update nodes in rings; one that fails stops it, and its ring goes back",
    rollout,
    "create",
  ),
  "admin rollout pause": adminCommand("Tell no other node to update", rollout, "pause"),
  "admin rollout resume": adminCommand("Let a paused update in rings go on", rollout, "resume"),
  "admin rollout abort": adminCommand("End an update in rings; its current ring goes back", rollout, "abort"),
  "admin drill lighthouse-away": adminCommand(
    "Take a lighthouse away for a while, and report who lost whom",
    drill,
    "lighthouseAway",
  ),
  "admin drill relay-away": adminCommand(
    "Take a relay away for a while, and report who lost whom",
    drill,
    "relayAway",
  ),
  "admin drill control-plane-away": adminCommand(
    "Let nodes do without the control plane for a while, and report who lost whom",
    drill,
    "controlPlaneAway",
  ),
  "admin drill show": adminCommand("Show a drill: who lost whom, and for how long", drill, "show"),
  "admin drill abort": adminCommand("End a drill before its time", drill, "abort"),
  "admin route list": adminCommand(
    "List the networks behind nodes, their routers, and what waits for approval",
    route,
    "list",
  ),
  "admin route show": adminCommand("Show the routers of a network", route, "show"),
  "admin route create": adminCommand(
    "Make nodes routers of a network behind them; this approves what they offer",
    route,
    "create",
  ),
  "admin route update": adminCommand("Change the metric or the maintenance of routers", route, "update"),
  "admin route delete": adminCommand("Stop nodes from routing a network", route, "remove"),
  "admin flow list": adminCommand("List who talked to whom, by protocol and port", flow, "list"),
  "admin rule list": adminCommand(
    "List the firewall rules; traffic that no rule allows is refused",
    rule,
    "list",
  ),
  "admin rule create": adminCommand("Create a firewall rule; the nodes apply it at once", rule, "create"),
  "admin rule update": adminCommand("Change a firewall rule, which keeps its number", rule, "update"),
  "admin rule delete": adminCommand("Delete a firewall rule", rule, "remove"),
  "admin seal ca": adminCommand(
    "Make an offline CA on this machine, and let all nodes trust it",
    () => import("./seal/offline-ca.ts"),
    "makeCa",
  ),
  "admin seal pending": adminCommand(
    "List the nodes that need a certificate of the offline CA",
    () => import("./seal/pending.ts"),
    "pending",
  ),
  "admin seal sign": adminCommand(
    "Show what changes, sign certificates and the next seal on this machine, and publish both",
    () => import("./seal/sign.ts"),
    "sign",
  ),
  "admin seal init": adminCommand(
    "Print the first seal: what the nodes of an organization may be told, for its signers",
    seal,
    "init",
  ),
  "admin seal review": adminCommand(
    "Show what the next seal would change, and print it to be signed",
    seal,
    "review",
  ),
  "admin seal publish": adminCommand("Publish a seal that its signers have signed", seal, "publish"),
  "admin seal forget": adminCommand(
    "Forget the seals of an organization whose signers are all lost",
    seal,
    "forget",
  ),
  "admin seal show": adminCommand(
    "Show the newest seal, its signers, and what waits for a signature",
    seal,
    "show",
  ),
  "admin policy get": adminCommand(
    "Print the policy as a file: rules, groups, routes, relays, tests",
    policy,
    "get",
  ),
  "admin policy propose": adminCommand(
    "Write today's policy narrowed to what reported flows used",
    policy,
    "propose",
  ),
  "admin policy plan": adminCommand(
    "Show what a policy file would change, and who gains or loses access",
    policy,
    "plan",
  ),
  "admin policy apply": adminCommand(
    "Apply a policy file; refused if one of its tests fails",
    policy,
    "apply",
  ),
  "admin policy test": adminCommand(
    "Run the tests of the policy or of a file, or test one packet",
    () => import("./policy/policy-test.ts"),
    "test",
  ),
  "admin policy confirm": adminCommand(
    "Confirm the policy that was applied for a limited time, so that it stays",
    policy,
    "confirm",
  ),
  "admin policy revert": adminCommand(
    "Roll back the policy that waits for its confirmation",
    policy,
    "revert",
  ),
  "admin policy update": adminCommand(
    "Let only the file change the policy, or let users change it, too",
    policy,
    "update",
  ),
  "admin policy import": adminCommand(
    "Make a policy file of a policy of Tailscale or headscale",
    () => import("./policy/policy-import.ts"),
    "importing",
  ),
  "admin ca show": adminCommand(
    "Show the CAs of an organization and the state of their rotation",
    ca,
    "show",
  ),
  "admin ca rotate": adminCommand(
    "Replace the CAs of an organization while all tunnels stay up",
    ca,
    "rotate",
  ),
  "admin key rotate": adminCommand(
    "Replace the key that encrypts the secrets in the database",
    ca,
    "rotateKey",
  ),
  "admin member list": adminCommand("List members and open invitations", members, "memberList"),
  "admin member create": adminCommand(
    "Add a user to an organization, or invite an e-mail address",
    members,
    "memberCreate",
  ),
  "admin member update": adminCommand("Change the role of a member", members, "memberUpdate"),
  "admin member delete": adminCommand(
    "Remove a member; nodes they registered and tokens they created stay",
    members,
    "memberDelete",
  ),
  "admin invitation list": adminCommand("List the open invitations", members, "invitationList"),
  "admin invitation create": adminCommand(
    "Invite an e-mail address; prints the link to send",
    members,
    "invitationCreate",
  ),
  "admin invitation delete": adminCommand(
    "Withdraw an invitation: its link stops working",
    members,
    "invitationDelete",
  ),
  "admin group list": adminCommand("List the groups of an organization", group, "list"),
  "admin group create": adminCommand("Create a group", group, "create"),
  "admin group update": adminCommand("Change the description of a group", group, "update"),
  "admin group delete": adminCommand("Delete a group that no node and no rule uses", group, "remove"),
  "admin alarm list": adminCommand(
    "List what is wrong: nodes away, broken paths, certificates and more",
    () => import("./alarm.ts"),
    "list",
  ),
  "admin alarm show": adminCommand(
    "Show an alarm: who cannot reach what, since when, and what that cuts",
    () => import("./alarm.ts"),
    "show",
  ),
  "admin alarm test": adminCommand(
    "Send a test alarm to every webhook that gets alarms",
    () => import("./alarm.ts"),
    "test",
  ),
  "admin webhook list": adminCommand("List the webhooks", webhook, "list"),
  "admin webhook create": adminCommand(
    "Send events or alarms to a URL, a chat, a mailbox or a syslog server",
    webhook,
    "create",
  ),
  "admin webhook update": adminCommand(
    "Change the URL, events, format or quiet hours of a webhook",
    webhook,
    "update",
  ),
  "admin webhook delete": adminCommand("Delete a webhook", webhook, "remove"),
  "admin webhook deliveries": adminCommand(
    "List the deliveries of a webhook and their results",
    webhook,
    "deliveries",
  ),
  "admin webhook send-again": adminCommand("Send a delivery of a webhook once more", webhook, "sendAgain"),
  "admin diff": adminCommand(
    "Show what a node's next configuration changes",
    () => import("./diff.ts"),
    "command",
  ),
  "admin events": adminCommand(
    "Show the audit log of an organization, or of the control plane, and follow it",
    () => import("./events.ts"),
    "command",
  ),
  "admin backup": adminCommand(
    "Write a verified copy of the database while the server runs",
    backup,
    "backup",
  ),
  "admin restore": adminCommand("Restore a backup; stop the server first", backup, "restore"),
  "admin clock confirm": adminCommand(
    "Say that the control plane's clock is right after a jump",
    server,
    "confirmClock",
  ),
  "admin server list": adminCommand(
    "List the servers on this PostgreSQL database, which runs each background loop, and warnings",
    server,
    "list",
  ),
  "admin audit verify": adminCommand("Verify the hash chains of the audit log", audit, "verify"),
  "admin audit verify-report": adminCommand(
    "Verify a signed report about a moment, without the control plane",
    () => import("./policy/past.ts"),
    "verifyReport",
  ),
  "admin export": adminCommand(
    "Export an organization as plain files for nebula-cert and nebula",
    plain,
    "exporting",
  ),
  "admin import": adminCommand("Import an existing Nebula network as a new organization", plain, "importing"),
};
