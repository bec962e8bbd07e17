// What went wrong in products like this one, and what a sign-in refuses, each with the tests that it does not go wrong here: an
// index for whoever reads this for its security. A test that is renamed or removed has to be named anew.

import { expect, test } from "bun:test";
import { join } from "node:path";

/** Advisory → what had happened, and titles of the tests that hold against it. */
const advisories: Record<string, { was: string; tests: readonly string[] }> = {
  "CVE-2022-41924": {
    was: "a web page rebound its name to a local control port and took the daemon over",
    tests: [
      "on loopback, only own names are answered, which stops DNS rebinding",
      "are identified by the kernel",
    ],
  },
  "CVE-2022-41925": {
    was: "a local API that did not look at the Host header told secrets of the environment",
    tests: [
      "on loopback, only own names are answered, which stops DNS rebinding",
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
      "is created by a link that works once, and only while there are no users",
      "its link expires after 30 minutes, and when another user is created",
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
      "no text can inject YAML",
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
    tests: [
      "another subject with the same address is another identity",
      "gives no session, and the user links the identity after a sign-in of the old way",
      "never is the user of the installation's provider with the same issuer, or of another organization's",
      "inviting a user that an invitation created gives no access without its password",
    ],
  },
  "headscale PR 3155": {
    was: "deleting one user removed the keys of all",
    tests: [
      "requests to one organization change no row of another",
      "removing a member with revoke_nodes revokes only their own nodes, not those that their tokens registered",
    ],
  },
  "CVE-2022-23650, CVE-2022-0664, CVE-2023-32077": {
    was: "a signing key stood in the source",
    tests: ["is private, and its key is created once; a second server is refused while the first runs"],
  },
  "CVE-2022-36110, CVE-2023-32078, CVE-2023-32079": {
    was: "ordinary tokens ran calls of administrators, or wrote fields that were not theirs",
    tests: [
      "a caller without the rights gets 403 before method, body and object are checked",
      "a body that is invalid, of the wrong type, too deep, too large or not an object is refused with the error shape",
    ],
  },
  "CVE-2026-38651": {
    was: "a token was read, and its signature never looked at",
    tests: ["the construction of the forgeries below is valid without the forged part"],
  },
  "CVE-2026-29196": {
    was: "the API gave out private keys that only the user interface hid",
    tests: ["no private key is stored, sent or accepted in any field"],
  },
  "CVE-2026-29771": {
    was: "anybody could end the server by a request",
    tests: ["answers %s as documented and as the table of rights says"],
  },
  "CVE-2026-47724": {
    was: "ownership was checked by the web pages alone, not by the API",
    tests: [
      "an organization is 404 if the caller does not belong to it or it does not exist",
      "a node's token gets 403 on another node's checkin and download_config, also in another organization",
    ],
  },
  "GHSA-339v-266x-79xr": {
    was: "a revoked machine registered again and had a fresh certificate",
    tests: ["gets no certificate from any endpoint", "does not restore a revoked node"],
  },
  "GHSA-cm26-5974-52h8": {
    was: "the blocklist was made, and no peer put it into force",
    tests: ["register, talk through the lighthouse, and stop talking to the one that is deleted"],
  },
  "GHSA-9pg3-25fq-p6cc": {
    was: "a new key stood in the address of a redirect",
    tests: ["are shown once with a command line that passes them by standard input, and stored as a hash"],
  },
  "GHSA-g4x6-jcvr-9m3g": {
    was: "the configured life of tokens was ignored on one of two ways",
    tests: ["an access token lives 15 minutes", "a token is valid until its last second"],
  },
  "nebula-mesh 70": {
    was: "a fingerprint that every peer sees was enough to be a node",
    tests: ["is refused with the public key alone, which every peer sees"],
  },
  "GHSA-7hp6": {
    was: "a field broke out of its place in config.yml",
    tests: ["no text can inject YAML"],
  },
  "GHSA-w7w5-5gcp-38rw": {
    was: "pages came without the headers that browsers need",
    tests: [
      "no page loads from another host, and inline scripts are allowed only by their hash",
      "answers %s as documented and as the table of rights says",
    ],
  },
  "CVE-2026-25793": {
    was: "a P-256 signature has two forms, and the blocklist knew one",
    tests: ["both forms of a P-256 signature verify, and the blocklist of one contains the other"],
  },
  "CVE-2025-62820": {
    was: "engines 1.9.4 to 1.9.6 let packets in under foreign addresses",
    tests: [
      "an engine with a known vulnerability is refused",
      "refuseEngineVersion() refuses what is too old or has a known hole",
    ],
  },
  "CVE-2020-11498": {
    was: "programs of the system were looked up by relative names",
    tests: [
      "runs programs by absolute path only, and searches neither PATH nor the current directory",
      "ignores files of the current directory",
    ],
  },
  "CVE-2026-30836": {
    was: "a kind of message that was read had no rule who may send it",
    tests: ["is documented, and has an example that succeeds"],
  },
  "CVE-2026-40097": {
    was: "an empty list in a certificate ended the process",
    tests: ["any bytes with a valid label", "bodies with known keys and random values"],
  },
  "GHSA-h8cp-697h-8c8p, GHSA-j7c9-79x7-8hpr": {
    was: "issuing and revoking followed two different rules",
    tests: ["gets no certificate from any endpoint"],
  },
};

/** What a sign-in refuses, and titles of its tests. */
const refusals: Record<string, readonly string[]> = {
  "wrong iss, aud, nonce, azp": [
    "with another iss",
    "with another aud",
    "with a second aud and no azp",
    "with a foreign azp",
    "with another nonce",
    "without a nonce",
  ],
  "algorithm none, HS256 with the public key, another key": [
    "without a signature",
    "signed by HS256 with the public key",
    "signed with another key",
  ],
  "expired, not yet valid": ["that has expired", "that is not valid yet", "after ten minutes"],
  "a reused code": ["that is used a second time, also at the same moment"],
  "a missing or foreign state": [
    "without state, with another state, and without a code",
    "without the cookie of the browser that began, or with that of another sign-in",
  ],
  "a mix-up of two providers": [
    "that another provider gave: the code of one is not sent to the other",
    "with a token of another provider",
    "of another organization takes no answer of a sign-in that began here, and the reverse",
    "an answer in the name of another provider, or for another request, signs nobody in",
  ],
  "an unverified e-mail address": [
    "an unverified address of the domain",
    "that the provider does not vouch for, or of another organization's domain, does not count",
  ],
  "another subject with the same address": ["another subject with the same address is another identity"],
  "an issuer that names another organization's domain": [
    "of a domain that another organization has verified cannot be a condition here",
    "that the provider does not vouch for, or of another organization's domain, does not count",
  ],
  "open redirects": ["to lead to %s afterwards: the start page opens"],
  "session fixation": [
    "a sign-in never keeps a cookie that the browser brought, and ends its session",
    "is a new one each time: the cookie that the browser had is replaced",
  ],
  "the cookie of a sibling host": [
    "a sibling host's cookie without the prefix, or with another case, is not read",
  ],
  "cross-site POST, and any other top-level GET": [
    "with %s change nothing",
    "with %s do not sign in",
    "no GET has an effect: every one of them leaves all tables as they were",
    "to a GET, which changes nothing",
  ],
  "a passkey of another RP": ["only pages of this control plane may do it", "of another relying party"],
  "a counter that falls": [
    "once a device counted, the counter must rise; zero is taken from synced passkeys, which never counted",
  ],
  "replayed TOTP and recovery codes": [
    "a code of the present step or one beside it is taken, each step once",
    "of 8 requests with one code at the same instant, one succeeds",
    "each of the ten recovery codes works once, however it is typed",
  ],
  "a guessed device code": [
    "has at least 40 bits, of which no letter is likelier than another",
    "that is guessed five times wrong locks the user's guesses, also for the right one",
    "wrong codes count together, wherever they are typed",
  ],
  "a device code that another member approves, or one after a demotion": [
    "gives the rights of who approved it, as they are when it is used",
    "is approved in browsers only: not by a token, not without a session, not by a foreign page",
  ],
  "a changed request after its approval": [
    "a changed request after the approval waits again, and its approval ends",
    "another name, other keys, another address or a lighthouse after the confirmation",
  ],
  "login CSRF": [
    "with %s do not sign in",
    "an identity is linked only in the session that began, and not to a second user",
  ],
  "step-up of another session": [
    "in a browser counts for its session alone",
    "counts for 10 minutes after a code, in this family alone, also after a refresh",
    "counts for the sign-in that asked for it, and no other",
  ],
  "reuse of a refresh token": [
    "each works once; a second use revokes the whole family",
    "used twice at the same instant, at most one request gets a pair",
  ],
  "a service token that makes tokens": [
    "none permits to make tokens, or to touch CAs, people, settings or sign-in",
  ],
  "what changed while the provider worked on the code": [
    "%s: no session begins",
    "the user who links an identity %s: it is not linked",
    "a session by an identity that was unlinked a moment before does not begin",
    "an identity that is unlinked while the provider is asked gets no role by the answer",
  ],
  "what changed just before or after": [
    "an invitation that %s while the new password is hashed makes no user",
    "cannot accept after it was disabled or its password changed, even during the request",
    "a stream sends nothing more once its user %s",
    "a request with a slow body is executed only if the caller still has the right at its end",
    "whose session ended since gives nothing",
    "a command line that was let in by the session of a person who left then gets nothing",
    "a user with a password loses the roles that the groups of the provider left behind gave",
    "from before the wall clock was set back does not count for longer",
  ],
};

const files = [...new Bun.Glob("**/*.ts").scanSync(import.meta.dir)].filter(
  (file) => join(import.meta.dir, file) !== import.meta.path,
);
const texts = await Promise.all(files.map((file) => Bun.file(join(import.meta.dir, file)).text()));

const isMissing = (title: string) => !texts.some((text) => text.includes(`"${title}"`));

test.each(Object.entries(advisories))("%s has its tests", (_, { tests }) => {
  expect(tests.filter(isMissing)).toEqual([]);
});

test.each(Object.entries(refusals))("a sign-in refuses %s", (_, tests) => {
  expect(tests.filter(isMissing)).toEqual([]);
});
