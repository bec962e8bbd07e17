// The admin commands by name; their files are loaded when one is called.

import type { Command } from "../command.ts";

type Entry = { summary: string; load(): Promise<{ command: Command }> };

const user = () => import("./user.ts");
const org = () => import("./org.ts");
const token = () => import("./token.ts");
const node = () => import("./node.ts");
const rule = () => import("./rule.ts");
const ca = () => import("./ca.ts");
const access = () => import("./access.ts");
const backup = () => import("./backup.ts");
const audit = () => import("./audit.ts");

const plain = () => import("./export.ts");

export const adminCommands: Record<string, Entry> = {
  "admin user create": {
    summary: "Make an account",
    load: async () => ({ command: (await user()).create }),
  },
  "admin user list": { summary: "List the accounts", load: async () => ({ command: (await user()).list }) },
  "admin user disable": {
    summary: "Shut an account out, at once",
    load: async () => ({ command: (await user()).disable }),
  },
  "admin user enable": {
    summary: "Let an account sign in again",
    load: async () => ({ command: (await user()).enable }),
  },
  "admin user password": {
    summary: "Give an account a new password",
    load: async () => ({ command: (await user()).password }),
  },
  "admin org create": {
    summary: "Make an organization with its two CAs",
    load: async () => ({ command: (await org()).create }),
  },
  "admin org update": {
    summary: "Change an organization: certificate versions, IPv6 network, name, CA rotation",
    load: async () => ({ command: (await org()).update }),
  },
  "admin org list": {
    summary: "List the organizations",
    load: async () => ({ command: (await org()).list }),
  },
  "admin token create": {
    summary: "Make a registration token; printed once",
    load: async () => ({ command: (await token()).create }),
  },
  "admin token list": {
    summary: "List the registration tokens",
    load: async () => ({ command: (await token()).list }),
  },
  "admin token revoke": {
    summary: "Revoke a registration token",
    load: async () => ({ command: (await token()).revoke }),
  },
  "admin node list": {
    summary: "List the nodes of an organization",
    load: async () => ({ command: (await node()).list }),
  },
  "admin node show": { summary: "Show one node", load: async () => ({ command: (await node()).show }) },
  "admin node create": {
    summary: "Make a node in advance",
    load: async () => ({ command: (await node()).create }),
  },
  "admin node revoke": {
    summary: "Cut a node off from all others",
    load: async () => ({ command: (await node()).revoke }),
  },
  "admin node restore": {
    summary: "Take a revocation back",
    load: async () => ({ command: (await node()).restore }),
  },
  "admin rule list": {
    summary: "List the firewall rules",
    load: async () => ({ command: (await rule()).list }),
  },
  "admin rule create": {
    summary: "Permit something",
    load: async () => ({ command: (await rule()).create }),
  },
  "admin rule delete": {
    summary: "Take a rule back",
    load: async () => ({ command: (await rule()).remove }),
  },
  "admin ca show": {
    summary: "Show the CAs of an organization, and how far their rotation is",
    load: async () => ({ command: (await ca()).show }),
  },
  "admin ca rotate": {
    summary: "Replace the CAs of an organization while all tunnels stay up",
    load: async () => ({ command: (await ca()).rotate }),
  },
  "admin key rotate": {
    summary: "A new key for the secrets at rest",
    load: async () => ({ command: (await ca()).rotateKey }),
  },
  "admin member list": {
    summary: "List members and open invitations",
    load: async () => ({ command: (await access()).memberList }),
  },
  "admin member create": {
    summary: "Add an account to an organization, or invite an address",
    load: async () => ({ command: (await access()).memberCreate }),
  },
  "admin member update": {
    summary: "Give a member another role",
    load: async () => ({ command: (await access()).memberUpdate }),
  },
  "admin member delete": {
    summary: "Remove a member",
    load: async () => ({ command: (await access()).memberDelete }),
  },
  "admin group list": {
    summary: "List the groups of an organization",
    load: async () => ({ command: (await access()).groupList }),
  },
  "admin group create": {
    summary: "Make a group",
    load: async () => ({ command: (await access()).groupCreate }),
  },
  "admin group delete": {
    summary: "Delete a group that nothing needs",
    load: async () => ({ command: (await access()).groupDelete }),
  },
  "admin backup": {
    summary: "Write a verified copy of everything but the secret key, while the server runs",
    load: async () => ({ command: (await backup()).backup }),
  },
  "admin restore": {
    summary: "Put a backup back; the server must not run",
    load: async () => ({ command: (await backup()).restore }),
  },
  "admin audit verify": {
    summary: "Check the hash chains of the audit log",
    load: async () => ({ command: (await audit()).verify }),
  },
  "admin export": {
    summary: "Write an organization as plain files for nebula-cert and nebula",
    load: async () => ({ command: (await plain()).exporting }),
  },
  "admin import": {
    summary: "Take a hand-made Nebula network over as a new organization",
    load: async () => ({ command: (await plain()).importing }),
  },
};
