// Sign-in of a command line by a browser: on the same machine (RFC 8252), or with a code that a user types in a browser on any
// machine (RFC 8628).

import * as v from "valibot";
import { foreignText } from "../base/text.ts";
import { TokenPair } from "../protocol/sign-in.ts";
import { endpoint } from "./endpoint.ts";
import { MachineDescription, PrintedUrl, Text, Time, waitS } from "./values.ts";

const secret = v.pipe(foreignText(1024), v.minLength(1));
/** SHA-256 in base64url. */
export const Challenge = v.pipe(foreignText(43), v.regex(/^[\w-]{43}$/));
const UserCode = foreignText(40);

/** The command line prints it: nothing that a terminal would interpret. */
const PrintedCode = v.pipe(
  Text,
  v.check((text) => /^[A-Z0-9-]{1,64}$/.test(text)),
);

export const DeviceSignIn = v.object({
  device_code: Text,
  user_code: PrintedCode,
  verification_uri: PrintedUrl,
  expires_in: waitS(3600),
  interval: waitS(60),
});
export type DeviceSignIn = v.InferOutput<typeof DeviceSignIn>;
const DeviceRequest = v.object({
  /** What the machine calls itself. */
  machine: Text,
  address: Text,
  /** The user signed in from the network of that address before. */
  is_known_network: v.boolean(),
  created_at: Time,
  expires_at: Time,
});
export type DeviceRequest = v.InferOutput<typeof DeviceRequest>;

const tokenPair = { 200: { description: "A pair of tokens", schema: TokenPair } };

export const commandLineApi = {
  begin: endpoint({
    name: "device_create",
    method: "POST",
    path: "/api/device/",
    access: "public",
    fresh: false,
    summary:
      "Begin a sign-in on a machine without a browser (RFC 8628). A user types `user_code` in a browser",
    body: v.strictObject({ machine: MachineDescription }),
    answers: { 201: { description: "The codes", schema: DeviceSignIn } },
  }),
  poll: endpoint({
    name: "device_token_create",
    method: "POST",
    path: "/api/device/token/",
    access: "public",
    fresh: false,
    summary: "Ask whether the sign-in was approved, every `interval` seconds. The code works once",
    body: v.strictObject({ device_code: secret }),
    answers: tokenPair,
    errors: [
      "sign_in_waiting",
      "sign_in_refused",
      "sign_in_expired",
      "permission_denied",
      "invalid_credentials",
    ],
  }),
  exchange: endpoint({
    name: "token_code_create",
    method: "POST",
    path: "/api/token/code/",
    access: "public",
    fresh: false,
    summary:
      "Exchange the code that a browser on the same machine brought (RFC 8252), with the PKCE verifier",
    body: v.strictObject({ code: secret, code_verifier: secret }),
    answers: tokenPair,
    errors: ["sign_in_expired", "invalid_credentials"],
  }),
  // Approvals need a browser that is signed in, and a fresh second factor of users who have one.
  createCode: endpoint({
    name: "user_login_codes_create",
    method: "POST",
    path: "/api/user/login_codes/",
    access: "person",
    fresh: true,
    summary: "A code that signs in the command line on the machine of this browser",
    body: v.strictObject({ code_challenge: Challenge }),
    answers: { 201: { description: "The code, for a minute", schema: v.object({ code: Text }) } },
  }),
  find: endpoint({
    name: "user_device_requests_find",
    method: "POST",
    path: "/api/user/device_requests/find/",
    access: "person",
    fresh: false,
    summary: "The machine that shows this code",
    body: v.strictObject({ user_code: UserCode }),
    answers: { 200: { description: "The machine", schema: DeviceRequest } },
    errors: ["not_found"],
  }),
  decide: endpoint({
    name: "user_device_requests_decide",
    method: "POST",
    path: "/api/user/device_requests/decide/",
    access: "person",
    fresh: true,
    summary: "Sign in the machine that shows this code as the own user, or refuse it",
    body: v.strictObject({ user_code: UserCode, approve: v.boolean() }),
    answers: { 204: { description: "Decided" } },
    errors: ["not_found"],
  }),
};
