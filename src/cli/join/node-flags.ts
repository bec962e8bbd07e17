// Flags that several commands of a machine share: `up`, `register`, `unregister`, `sync-config`.

import { switchFlag, valueFlag } from "../values.ts";

export const accessTokenFlag = {
  "access-token": valueFlag("JWT", "Access token of an administrator", { secret: true }),
};

/** Used on a copied disk or virtual machine. */
export const newKeysFlag = {
  "new-keys": switchFlag(
    "Make this machine another node with new keys, and leave the present node to the machine that it was copied from",
  ),
};

export const permissionFlags = {
  "allow-routes": valueFlag(
    "NETWORKS",
    "Networks that the control plane can route, even a default route: 0.0.0.0/0,::/0 (none: revoke it)",
  ),
  "allow-overlap": valueFlag(
    "NETWORKS",
    "Overlay networks that can take over networks of this machine (none: revoke it)",
  ),
  "allow-listeners": valueFlag(
    "LISTENERS",
    "Where the engine can listen, or send metrics: 127.0.0.1:9100; :443 for its own UDP port (none: revoke it)",
  ),
  "allow-interfaces": valueFlag(
    "NAMES",
    "Names that the control plane can give to the interface (none: revoke it)",
  ),
  advertise: valueFlag(
    "NETWORKS",
    "Networks behind this machine to route for the others, once an administrator approves: 192.168.7.0/24 (none: end it)",
  ),
  "advertise-exit": switchFlag("Offer this machine as an exit to the internet; an administrator approves it"),
  "no-advertise-exit": switchFlag("Withdraw that offer"),
  flows: switchFlag("Let the organization know which flows there are, if it wants to: the usual"),
  "no-flows": switchFlag("Never report which flows there are on this machine"),
  "allow-updates": valueFlag(
    "WHAT",
    "Let the control plane update this machine in rings: agent,engine; for one organization a machine (none: revoke it)",
  ),
  "tcp-fallback": valueFlag(
    "LISTENER",
    "On a lighthouse or relay: offer it to nodes without UDP at this TCP port, :443. off: never use TCP (none: revoke it)",
  ),
  "port-mapping": switchFlag(
    "Ask the router for a UDP port, so that peers reach this machine directly: the usual",
  ),
  "no-port-mapping": switchFlag("Never ask a router for a port"),
  "no-tcp": switchFlag("Never use TCP where UDP is blocked: the same as --tcp-fallback off"),
};

/** How far a control plane is trusted that the command sends a token to. */
export const trustFlags = {
  "ca-fingerprint": valueFlag("sha256:HEX", "Trust the TLS CA of the control plane with this fingerprint"),
  "allow-plain-http": switchFlag("Allow http:// to another machine; the token is sent unencrypted"),
};
