// What went wrong in products like this one, and the tests that it does not go wrong here: an index for whoever reads
// this for its security. A test that is renamed or removed has to be named anew.

import { expect, test } from "bun:test";
import { join } from "node:path";

/** Advisory → what had happened, and titles of the tests that hold against it. */
const advisories: Record<string, { was: string; tests: readonly string[] }> = {
  "CVE-2022-41924": {
    was: "a web page rebound its name to a local control port and took the daemon over",
    tests: [
      "on loopback, only its own names are answered, so that no web page can point one of its own at it",
      "are identified by the kernel",
    ],
  },
  "CVE-2022-41925": {
    was: "a local API that did not look at the Host header told secrets of the environment",
    tests: [
      "on loopback, only its own names are answered, so that no web page can point one of its own at it",
      "no secret is in a log, an error, the process list, a dry run or the database",
    ],
  },
  "TS-2025-007": {
    was: "a key for one use was checked in one transaction and used up in another",
    tests: ["200 at the same instant with a single-use token give exactly one node"],
  },
  "TS-2025-003": {
    was: "a shared secret was compared in variable time",
    tests: ["are 32 random bytes in URL-safe base64, and only their hash is stored"],
  },
  "tailscale PR 20378": {
    was: "a daemon with root rights opened whatever socket an ordinary user named",
    tests: ["members of the group are let in as such, root as root, others not at all"],
  },
  "CVE-2025-10678": {
    was: "the installer left a default password for the administrator",
    tests: [
      "is made by a link that works once, and only while there is none",
      "its link dies after 30 minutes, and with an account that was made otherwise",
    ],
  },
  "netbird 6967, 6975": {
    was: "everybody could write to the daemon's socket and choose paths",
    tests: [
      "belongs to root, or to the group if there is one; its directory is closed to others",
      "every action answers, and only root may end the daemon",
    ],
  },
  "GHSA-qcpp-8vwj-hhwr": {
    was: "the daemon's socket did not check which local user connected, so every user could run every verb",
    tests: [
      "are identified by the kernel",
      "members of the group are let in as such, root as root, others not at all",
      "the right of each action is fixed: changes need the group, the end of the daemon needs root",
    ],
  },
  "CVE-2026-105429": {
    was: "the name of a peer was written into ssh_config as it was, and ran commands",
    tests: [
      "names of organizations and nodes need no quotes, are no flags, and are plain systemd instances",
      "every line of the source that is printed for pasting quotes its values",
      "stays one word in the lines for members and users",
      "no text breaks out of its place",
    ],
  },
  "GO-2026-5646": {
    was: "two requests at the same instant made an admin an owner",
    tests: [
      "an admin who is demoted at the same instant makes no owner, of themselves or of another",
      "an owner who is demoted at the same instant makes owners before that, never after",
      "two owners who demote or remove each other, or step down, at the same instant leave one owner",
    ],
  },
  "CVE-2023-47390": {
    was: "bearer tokens stood in the log",
    tests: ["no secret is in a log, an error, the process list, a dry run or the database"],
  },
  "headscale 0.24": {
    was: "an account was taken over by its e-mail address",
    tests: ["inviting an account made by an invitation gains nothing without its password"],
  },
  "headscale PR 3155": {
    was: "deleting one user removed the keys of all",
    tests: [
      "whatever happens in one organization leaves every row of another as it was",
      "removing a member with revoke_nodes takes what they registered, by sign-in and by token, and no other's",
    ],
  },
  "CVE-2022-23650, CVE-2022-0664, CVE-2023-32077": {
    was: "a signing key stood in the source",
    tests: ["is private, with a key that is made once; a second server is kept out, the next one is not"],
  },
  "CVE-2022-36110, CVE-2023-32078, CVE-2023-32079": {
    was: "ordinary tokens ran calls of administrators, or wrote fields that were not theirs",
    tests: [
      "who has too few rights is 403, before the method, the body and the object are looked at",
      "a body that is broken, of the wrong type, too deep, too big or no object is refused in the one shape",
    ],
  },
  "CVE-2026-38651": {
    was: "a token was read, and its signature never looked at",
    tests: ["the forgeries below fail because of what is forged: the same construction unforged passes"],
  },
  "CVE-2026-29196": {
    was: "the API gave out private keys that only the user interface hid",
    tests: ["no private key is stored, sent or accepted in any field"],
  },
  "CVE-2026-29771": {
    was: "anybody could end the server by a request",
    tests: ["answers %s as documented, with what they may and nothing more"],
  },
  "CVE-2026-47724": {
    was: "ownership was checked by the web pages alone, not by the API",
    tests: [
      "an organization that the caller does not belong to is 404; one that is not there too",
      "a node's token is 403 on the two of another node and of another organization",
    ],
  },
  "GHSA-339v-266x-79xr": {
    was: "a revoked machine registered again and had a fresh certificate",
    tests: ["gets no certificate by any way", "a revoked node does not come back by it"],
  },
  "GHSA-cm26-5974-52h8": {
    was: "the blocklist was made, and no peer put it into force",
    tests: ["register, talk through the lighthouse, and stop talking to the one that is deleted"],
  },
  "GHSA-9pg3-25fq-p6cc": {
    was: "a new key stood in the address of a redirect",
    tests: ["are shown once, with a line to paste that keeps them out of arguments, and stored hashed"],
  },
  "GHSA-g4x6-jcvr-9m3g": {
    was: "the configured life of tokens was ignored on one of two ways",
    tests: ["an access token lives 15 minutes", "what was signed is verified until its last second"],
  },
  "nebula-mesh 70": {
    was: "a fingerprint that every peer sees was enough to be a node",
    tests: ["the public key alone, which every peer sees, gets nothing"],
  },
  "GHSA-7hp6": {
    was: "a field broke out of its place in config.yml",
    tests: ["no text breaks out of its place"],
  },
  "GHSA-w7w5-5gcp-38rw": {
    was: "pages came without the headers that browsers need",
    tests: [
      "no page asks an outside host, and every inline script is allowed by its hash alone",
      "answers %s as documented, with what they may and nothing more",
    ],
  },
  "CVE-2026-25793": {
    was: "a P-256 signature has two forms, and the blocklist knew one",
    tests: ["both faces of a P-256 certificate verify, and each is on the blocklist of the other"],
  },
  "CVE-2025-62820": {
    was: "engines 1.9.4 to 1.9.6 let packets in under foreign addresses",
    tests: [
      "an engine with a known hole is refused",
      "refuseEngineVersion() refuses what is too old or has a known hole",
    ],
  },
  "CVE-2020-11498": {
    was: "programs of the system were looked up by relative names",
    tests: [
      "programs are started by absolute path alone: neither PATH nor the present directory is searched",
      "files of the current directory are not obeyed",
    ],
  },
  "CVE-2026-30836": {
    was: "a kind of message that was read had no rule who may send it",
    tests: ["is described, and has an example that succeeds"],
  },
  "CVE-2026-40097": {
    was: "an empty list in a certificate ended the process",
    tests: ["any bytes under a banner", "bodies of the right keys with any values"],
  },
  "GHSA-h8cp-697h-8c8p, GHSA-j7c9-79x7-8hpr": {
    was: "issuing and revoking followed two different rules",
    tests: ["gets no certificate by any way"],
  },
};

const files = [...new Bun.Glob("**/*.ts").scanSync(import.meta.dir)].filter(
  (file) => join(import.meta.dir, file) !== import.meta.path,
);
const texts = await Promise.all(files.map((file) => Bun.file(join(import.meta.dir, file)).text()));

test.each(Object.entries(advisories))("%s has its tests", (_, { tests }) => {
  const missing = tests.filter((title) => !texts.some((text) => text.includes(`"${title}"`)));
  expect(missing).toEqual([]);
});
