// Flags that several commands of a machine share: `up`, `register`, `unregister`, `sync-config`.

import type { Flags } from "../values.ts";

export const accessTokenFlag: Flags = {
  "access-token": {
    type: "string",
    valueHint: "JWT",
    secret: true,
    description: "Access token of an administrator",
  },
};

/** Used on a copied disk or virtual machine. */
export const newKeysFlag = {
  "new-keys": {
    type: "boolean",
    description:
      "Make this machine another node with new keys, and leave the present node to the machine that it was copied from",
  },
} as const satisfies Flags;

export const permissionFlags: Flags = {
  "allow-routes": {
    type: "string",
    valueHint: "NETWORKS",
    description:
      "Networks that the control plane can route, even a default route: 0.0.0.0/0,::/0 (none: revoke it)",
  },
  "allow-overlap": {
    type: "string",
    valueHint: "NETWORKS",
    description: "Overlay networks that can take over networks of this machine (none: revoke it)",
  },
  "allow-listeners": {
    type: "string",
    valueHint: "LISTENERS",
    description:
      "Where the engine can listen, or send metrics: 127.0.0.1:9100; :443 for its own UDP port (none: revoke it)",
  },
  "allow-interfaces": {
    type: "string",
    valueHint: "NAMES",
    description: "Names that the control plane can give to the interface (none: revoke it)",
  },
  advertise: {
    type: "string",
    valueHint: "NETWORKS",
    description:
      "Networks behind this machine to route for the others, once an administrator approves: 192.168.7.0/24 (none: end it)",
  },
  "advertise-exit": {
    type: "boolean",
    description: "Offer this machine as an exit to the internet; an administrator approves it",
  },
  "no-advertise-exit": { type: "boolean", description: "Offer it no longer" },
  flows: {
    type: "boolean",
    description: "Let the organization know which flows there are, if it wants to: the usual",
  },
  "no-flows": { type: "boolean", description: "Never report which flows there are on this machine" },
  "allow-updates": {
    type: "string",
    valueHint: "WHAT",
    description:
      "Let the control plane update this machine in rings: agent,engine; for one organization a machine (none: revoke it)",
  },
  "tcp-fallback": {
    type: "string",
    valueHint: "LISTENER",
    description:
      "On a lighthouse or relay: offer it to nodes without UDP at this TCP port, :443. off: never use TCP (none: revoke it)",
  },
  "port-mapping": {
    type: "boolean",
    description: "Ask the router for a UDP port, so that peers reach this machine directly: the usual",
  },
  "no-port-mapping": { type: "boolean", description: "Never ask a router for a port" },
  "no-tcp": {
    type: "boolean",
    description: "Never use TCP where UDP is blocked: the same as --tcp-fallback off",
  },
};

/** How far a control plane is trusted that the command sends a token to. */
export const trustFlags: Flags = {
  "ca-fingerprint": {
    type: "string",
    valueHint: "sha256:HEX",
    description: "Trust the TLS CA of the control plane with this fingerprint",
  },
  "allow-plain-http": {
    type: "boolean",
    description: "Allow http:// to another machine; the token is sent unencrypted",
  },
};
