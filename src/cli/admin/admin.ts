// The admin commands. Their files are loaded when one is called.

import { lazyCommand, type CommandTable } from "../command.ts";

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

export const adminCommands: CommandTable = {
  "admin user create": lazyCommand({ description: "Create a user" }, async () => (await user()).create),
  "admin user list": lazyCommand({ description: "List the users" }, async () => (await user()).list),
  "admin user disable": lazyCommand(
    { description: "Disable a user: end their sessions and refuse sign-in" },
    async () => (await user()).disable,
  ),
  "admin user enable": lazyCommand(
    { description: "Let a disabled user sign in again" },
    async () => (await user()).enable,
  ),
  "admin user password": lazyCommand(
    { description: "Set a new password for a user and end their sessions" },
    async () => (await user()).password,
  ),
  "admin session list": lazyCommand(
    { description: "List the browsers and command lines in which you, or a member, are signed in" },
    async () => (await session()).list,
  ),
  "admin session revoke": lazyCommand(
    { description: "Sign out of a browser or command line, or a member of all" },
    async () => (await session()).revoke,
  ),
  "admin factor list": lazyCommand(
    { description: "Show your second factors" },
    async () => (await factor()).list,
  ),
  "admin factor add": lazyCommand(
    { description: "Add an authenticator app as your second factor" },
    async () => (await factor()).add,
  ),
  "admin factor remove": lazyCommand(
    { description: "Remove your authenticator app" },
    async () => (await factor()).remove,
  ),
  "admin factor codes": lazyCommand(
    { description: "Print new recovery codes; the former ones stop working" },
    async () => (await factor()).codes,
  ),
  "admin factor staff": lazyCommand(
    { description: "Require a second factor of all staff users, or make it optional" },
    async () => (await factor()).staff,
  ),
  "admin user reset-factors": lazyCommand(
    { description: "Remove all second factors of a user who lost them, and end their sessions" },
    async () => (await user()).resetFactors,
  ),
  "admin oidc list": lazyCommand(
    { description: "List the providers of identities by which users sign in" },
    async () => (await oidc()).list,
  ),
  "admin oidc create": lazyCommand(
    { description: "Let users sign in by a provider of identities (OpenID Connect)" },
    async () => (await oidc()).create,
  ),
  "admin oidc update": lazyCommand(
    { description: "Change who signs in by a provider of identities, and what its groups give" },
    async () => (await oidc()).update,
  ),
  "admin oidc delete": lazyCommand(
    { description: "Delete a provider of identities" },
    async () => (await oidc()).remove,
  ),
  "admin domain list": lazyCommand(
    { description: "List the domains of e-mail addresses that an organization has claimed" },
    async () => (await domain()).list,
  ),
  "admin domain create": lazyCommand(
    {
      description: "Claim a domain, so that the addresses that the organization's provider names there count",
    },
    async () => (await domain()).create,
  ),
  "admin domain check": lazyCommand(
    { description: "Verify a claimed domain by its TXT record" },
    async () => (await domain()).check,
  ),
  "admin domain vouch": lazyCommand(
    { description: "Verify a domain of an organization by the word of staff, without a record" },
    async () => (await domain()).vouch,
  ),
  "admin domain delete": lazyCommand(
    { description: "Give a domain up: its addresses no longer count" },
    async () => (await domain()).remove,
  ),
  "admin org create": lazyCommand(
    { description: "Create an organization with its two CAs" },
    async () => (await org()).create,
  ),
  "admin org update": lazyCommand(
    {
      description:
        "Change the certificate version, IPv6 network, name, CA rotation, visible names or reports of paths",
    },
    async () => (await org()).update,
  ),
  "admin org list": lazyCommand({ description: "List the organizations" }, async () => (await org()).list),
  "admin org show": lazyCommand(
    { description: "Show an organization and its settings" },
    async () => (await org()).show,
  ),
  "admin org delete": lazyCommand(
    { description: "Delete an organization and revoke all its nodes" },
    async () => (await org()).remove,
  ),
  "admin token create": lazyCommand(
    { description: "Create a registration token; it is printed once" },
    async () => (await token()).create,
  ),
  "admin token list": lazyCommand(
    { description: "List the registration tokens, without the secrets" },
    async () => (await token()).list,
  ),
  "admin token revoke": lazyCommand(
    { description: "Revoke a registration token; nodes that used it stay" },
    async () => (await token()).revoke,
  ),
  "admin registration list": lazyCommand(
    { description: "List the machines that wait for approval" },
    async () => (await registration()).list,
  ),
  "admin registration approve": lazyCommand(
    { description: "Approve a machine that waits" },
    async () => (await registration()).approve,
  ),
  "admin registration refuse": lazyCommand(
    { description: "Refuse a machine that waits" },
    async () => (await registration()).refuse,
  ),
  "admin service-token create": lazyCommand(
    { description: "Create a token for a program; it is printed once" },
    async () => (await serviceToken()).create,
  ),
  "admin service-token list": lazyCommand(
    { description: "List the tokens of programs, without the secrets" },
    async () => (await serviceToken()).list,
  ),
  "admin service-token revoke": lazyCommand(
    { description: "Revoke the token of a program" },
    async () => (await serviceToken()).revoke,
  ),
  "admin node list": lazyCommand(
    { description: "List the nodes of an organization" },
    async () => (await node()).list,
  ),
  "admin node show": lazyCommand(
    { description: "Show one node" },
    async () => (await import("./nodes/node-show.ts")).show,
  ),
  "admin node create": lazyCommand(
    { description: "Create a node in advance; its machine claims it by registering" },
    async () => (await node()).create,
  ),
  "admin node update": lazyCommand(
    { description: "Change the name, address, groups, subnets, roles or overrides of a node" },
    async () => (await import("./nodes/node-update.ts")).update,
  ),
  "admin node rename": lazyCommand({ description: "Rename a node" }, async () => (await node()).rename),
  "admin node revoke": lazyCommand(
    { description: "Revoke a node: the other nodes stop talking to it" },
    async () => (await node()).revoke,
  ),
  "admin node delete": lazyCommand(
    { description: "The same as node revoke" },
    async () => (await node()).revoke,
  ),
  "admin node restore": lazyCommand(
    { description: "Restore a revoked node" },
    async () => (await node()).restore,
  ),
  "admin node renew": lazyCommand(
    { description: "Renew the certificates of a node now" },
    async () => (await node()).renew,
  ),
  "admin node transfer": lazyCommand(
    { description: "Give a node to a member, or to the organization" },
    async () => (await import("./nodes/node-transfer.ts")).transfer,
  ),
  "admin name list": lazyCommand(
    { description: "List the aliases: further names of nodes, and names of addresses behind routers" },
    async () => (await name()).list,
  ),
  "admin name create": lazyCommand(
    { description: "Create an alias; the nodes know it at once" },
    async () => (await name()).create,
  ),
  "admin name delete": lazyCommand({ description: "Delete an alias" }, async () => (await name()).remove),
  "admin path list": lazyCommand(
    { description: "List how nodes reach their peers, as they reported last" },
    async () => (await path()).list,
  ),
  "admin relay list": lazyCommand(
    { description: "List the relays, what they forwarded this month, and their limits" },
    async () => (await relay()).list,
  ),
  "admin relay limit": lazyCommand(
    { description: "Set or remove the monthly limit of a relay" },
    async () => (await relay()).limit,
  ),
  "admin rollout list": lazyCommand(
    { description: "List the updates of nodes in rings" },
    async () => (await rollout()).list,
  ),
  "admin rollout show": lazyCommand(
    { description: "Show an update in rings, and what stopped it" },
    async () => (await rollout()).show,
  ),
  "admin rollout create": lazyCommand(
    { description: "Update nodes in rings; one that fails stops it, and its ring goes back" },
    async () => (await rollout()).create,
  ),
  "admin rollout pause": lazyCommand(
    { description: "Tell no other node to update" },
    async () => (await rollout()).pause,
  ),
  "admin rollout resume": lazyCommand(
    { description: "Let a paused update in rings go on" },
    async () => (await rollout()).resume,
  ),
  "admin rollout abort": lazyCommand(
    { description: "End an update in rings; its current ring goes back" },
    async () => (await rollout()).abort,
  ),
  "admin drill lighthouse-away": lazyCommand(
    { description: "Take a lighthouse away for a while, and report who lost whom" },
    async () => (await drill()).lighthouseAway,
  ),
  "admin drill relay-away": lazyCommand(
    { description: "Take a relay away for a while, and report who lost whom" },
    async () => (await drill()).relayAway,
  ),
  "admin drill control-plane-away": lazyCommand(
    { description: "Let nodes do without the control plane for a while, and report who lost whom" },
    async () => (await drill()).controlPlaneAway,
  ),
  "admin drill show": lazyCommand(
    { description: "Show a drill: who lost whom, and for how long" },
    async () => (await drill()).show,
  ),
  "admin drill abort": lazyCommand(
    { description: "End a drill before its time" },
    async () => (await drill()).abort,
  ),
  "admin route list": lazyCommand(
    { description: "List the networks behind nodes, their routers, and what waits for approval" },
    async () => (await route()).list,
  ),
  "admin route show": lazyCommand(
    { description: "Show the routers of a network" },
    async () => (await route()).show,
  ),
  "admin route create": lazyCommand(
    { description: "Make nodes routers of a network behind them; this approves what they offer" },
    async () => (await route()).create,
  ),
  "admin route update": lazyCommand(
    { description: "Change the metric or the maintenance of routers" },
    async () => (await route()).update,
  ),
  "admin route delete": lazyCommand(
    { description: "Let nodes route a network no longer" },
    async () => (await route()).remove,
  ),
  "admin flow list": lazyCommand(
    { description: "List who talked to whom, by protocol and port" },
    async () => (await flow()).list,
  ),
  "admin rule list": lazyCommand(
    { description: "List the firewall rules; traffic that no rule allows is refused" },
    async () => (await rule()).list,
  ),
  "admin rule create": lazyCommand(
    { description: "Create a firewall rule; the nodes apply it at once" },
    async () => (await rule()).create,
  ),
  "admin rule update": lazyCommand(
    { description: "Change a firewall rule, which keeps its number" },
    async () => (await rule()).update,
  ),
  "admin rule delete": lazyCommand(
    { description: "Delete a firewall rule" },
    async () => (await rule()).remove,
  ),
  "admin seal ca": lazyCommand(
    { description: "Make an offline CA on this machine, and let all nodes trust it" },
    async () => (await import("./seal/offline-ca.ts")).makeCa,
  ),
  "admin seal pending": lazyCommand(
    { description: "List the nodes that need a certificate of the offline CA" },
    async () => (await import("./seal/pending.ts")).pending,
  ),
  "admin seal sign": lazyCommand(
    {
      description: "Show what changes, sign certificates and the next seal on this machine, and publish both",
    },
    async () => (await import("./seal/sign.ts")).sign,
  ),
  "admin seal init": lazyCommand(
    { description: "Print the first seal: what the nodes of an organization may be told, for its signers" },
    async () => (await seal()).init,
  ),
  "admin seal review": lazyCommand(
    { description: "Show what the next seal would change, and print it to be signed" },
    async () => (await seal()).review,
  ),
  "admin seal publish": lazyCommand(
    { description: "Publish a seal that its signers have signed" },
    async () => (await seal()).publish,
  ),
  "admin seal forget": lazyCommand(
    { description: "Forget the seals of an organization whose signers are all lost" },
    async () => (await seal()).forget,
  ),
  "admin seal show": lazyCommand(
    { description: "Show the newest seal, its signers, and what waits for a signature" },
    async () => (await seal()).show,
  ),
  "admin policy get": lazyCommand(
    { description: "Print the policy as a file: rules, groups, routes, relays, tests" },
    async () => (await policy()).get,
  ),
  "admin policy propose": lazyCommand(
    { description: "Write today's policy narrowed to what reported flows used" },
    async () => (await policy()).propose,
  ),
  "admin policy plan": lazyCommand(
    { description: "Show what a policy file would change, and who gains or loses access" },
    async () => (await policy()).plan,
  ),
  "admin policy apply": lazyCommand(
    { description: "Apply a policy file; refused if one of its tests fails" },
    async () => (await policy()).apply,
  ),
  "admin policy test": lazyCommand(
    { description: "Run the tests of the policy or of a file, or test one packet" },
    async () => (await import("./policy/policy-test.ts")).test,
  ),
  "admin policy confirm": lazyCommand(
    { description: "Confirm the policy that was applied for a limited time, so that it stays" },
    async () => (await policy()).confirm,
  ),
  "admin policy revert": lazyCommand(
    { description: "Take back the policy that waits for its confirmation" },
    async () => (await policy()).revert,
  ),
  "admin policy update": lazyCommand(
    { description: "Let only the file change the policy, or let users change it, too" },
    async () => (await policy()).update,
  ),
  "admin policy import": lazyCommand(
    { description: "Make a policy file of a policy of Tailscale or headscale" },
    async () => (await import("./policy/policy-import.ts")).importing,
  ),
  "admin ca show": lazyCommand(
    { description: "Show the CAs of an organization and the state of their rotation" },
    async () => (await ca()).show,
  ),
  "admin ca rotate": lazyCommand(
    { description: "Replace the CAs of an organization while all tunnels stay up" },
    async () => (await ca()).rotate,
  ),
  "admin key rotate": lazyCommand(
    { description: "Replace the key that encrypts the secrets in the database" },
    async () => (await ca()).rotateKey,
  ),
  "admin member list": lazyCommand(
    { description: "List members and open invitations" },
    async () => (await members()).memberList,
  ),
  "admin member create": lazyCommand(
    { description: "Add a user to an organization, or invite an e-mail address" },
    async () => (await members()).memberCreate,
  ),
  "admin member update": lazyCommand(
    { description: "Change the role of a member" },
    async () => (await members()).memberUpdate,
  ),
  "admin member delete": lazyCommand(
    { description: "Remove a member; nodes they registered and tokens they created stay" },
    async () => (await members()).memberDelete,
  ),
  "admin invitation list": lazyCommand(
    { description: "List the open invitations" },
    async () => (await members()).invitationList,
  ),
  "admin invitation create": lazyCommand(
    { description: "Invite an e-mail address; prints the link to send" },
    async () => (await members()).invitationCreate,
  ),
  "admin invitation delete": lazyCommand(
    { description: "Withdraw an invitation: its link stops working" },
    async () => (await members()).invitationDelete,
  ),
  "admin group list": lazyCommand(
    { description: "List the groups of an organization" },
    async () => (await group()).list,
  ),
  "admin group create": lazyCommand({ description: "Create a group" }, async () => (await group()).create),
  "admin group update": lazyCommand(
    { description: "Change the description of a group" },
    async () => (await group()).update,
  ),
  "admin group delete": lazyCommand(
    { description: "Delete a group that no node and no rule uses" },
    async () => (await group()).remove,
  ),
  "admin alarm list": lazyCommand(
    { description: "List what is wrong: nodes away, broken paths, certificates and more" },
    async () => (await import("./alarm.ts")).list,
  ),
  "admin alarm show": lazyCommand(
    { description: "Show an alarm: who cannot reach what, since when, and what that cuts" },
    async () => (await import("./alarm.ts")).show,
  ),
  "admin alarm test": lazyCommand(
    { description: "Send a test alarm to every webhook that gets alarms" },
    async () => (await import("./alarm.ts")).test,
  ),
  "admin webhook list": lazyCommand({ description: "List the webhooks" }, async () => (await webhook()).list),
  "admin webhook create": lazyCommand(
    { description: "Send events or alarms to a URL, a chat, a mailbox or a syslog server" },
    async () => (await webhook()).create,
  ),
  "admin webhook update": lazyCommand(
    { description: "Change the URL, events, format or quiet hours of a webhook" },
    async () => (await webhook()).update,
  ),
  "admin webhook delete": lazyCommand(
    { description: "Delete a webhook" },
    async () => (await webhook()).remove,
  ),
  "admin webhook deliveries": lazyCommand(
    { description: "List the deliveries of a webhook and their results" },
    async () => (await webhook()).deliveries,
  ),
  "admin webhook send-again": lazyCommand(
    { description: "Send a delivery of a webhook once more" },
    async () => (await webhook()).sendAgain,
  ),
  "admin diff": lazyCommand(
    { description: "Show what a node's next configuration changes" },
    async () => (await import("./diff.ts")).command,
  ),
  "admin events": lazyCommand(
    { description: "Show the audit log of an organization, or of the control plane, and follow it" },
    async () => (await import("./events.ts")).command,
  ),
  "admin backup": lazyCommand(
    { description: "Write a verified copy of the database while the server runs" },
    async () => (await backup()).backup,
  ),
  "admin restore": lazyCommand(
    { description: "Restore a backup; stop the server first" },
    async () => (await backup()).restore,
  ),
  "admin clock confirm": lazyCommand(
    { description: "Say that the control plane's clock is right after a jump" },
    async () => (await server()).confirmClock,
  ),
  "admin server list": lazyCommand(
    {
      description:
        "List the servers on this PostgreSQL database, which runs each background loop, and warnings",
    },
    async () => (await server()).list,
  ),
  "admin audit verify": lazyCommand(
    { description: "Verify the hash chains of the audit log" },
    async () => (await audit()).verify,
  ),
  "admin audit verify-report": lazyCommand(
    { description: "Verify a signed report about a moment, without the control plane" },
    async () => (await import("./policy/past.ts")).verifyReport,
  ),
  "admin export": lazyCommand(
    { description: "Export an organization as plain files for nebula-cert and nebula" },
    async () => (await plain()).exporting,
  ),
  "admin import": lazyCommand(
    { description: "Import an existing Nebula network as a new organization" },
    async () => (await plain()).importing,
  ),
};
