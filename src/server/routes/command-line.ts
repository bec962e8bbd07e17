// Routes by which `agent login` signs in with a browser: on the same machine, or with a code on any machine.

import { Machine } from "../../api/values.ts";
import * as v from "valibot";
import { TokenPair } from "../../protocol/sign-in.ts";
import { actorOf } from "../audit/record.ts";
import { created, noContent } from "../http/reply.ts";
import { body, route, type Route } from "../http/route.ts";
import {
  beginDeviceSignIn,
  decideDeviceRequest,
  DeviceRequest,
  DeviceSignIn,
  findDeviceRequest,
  pollDeviceSignIn,
  UserCode,
} from "../users/sessions/device-sign-in.ts";
import { Challenge, makeLoginCode, useLoginCode } from "../users/sessions/login-codes.ts";
import type { Services } from "../services.ts";
import { browserOf } from "../users/sessions/browser-sessions.ts";
import { fromOf } from "../users/sessions/families.ts";
import { foreignText } from "../../base/text.ts";

const secret = v.pipe(foreignText(1024), v.minLength(1));
const pair = { 200: { description: "A pair of tokens", schema: TokenPair } };

export function commandLineRoutes(services: Services): Route[] {
  return [...tokenRoutes(services), ...browserRoutes(services)];
}

function tokenRoutes(services: Services): Route[] {
  return [
    route({
      method: "POST",
      path: "/api/device/",
      access: "public",
      name: "device_create",
      fresh: false,
      summary:
        "Begin a sign-in on a machine without a browser (RFC 8628). A user types `user_code` in a browser",
      takes: body(v.strictObject({ machine: Machine })),
      answers: { 201: { description: "The codes", schema: DeviceSignIn } },
      errors: ["throttled"],
      handle: async (call, { machine }) => created(await beginDeviceSignIn(services, machine, call.address)),
    }),
    route({
      method: "POST",
      path: "/api/device/token/",
      access: "public",
      name: "device_token_create",
      fresh: false,
      summary: "Ask whether the sign-in was approved, every `interval` seconds. The code works once",
      takes: body(v.strictObject({ device_code: secret })),
      answers: pair,
      errors: [
        "sign_in_waiting",
        "sign_in_refused",
        "sign_in_expired",
        "permission_denied",
        "invalid_credentials",
        "throttled",
      ],
      handle: async (_call, { device_code }) => ({ body: await pollDeviceSignIn(services, device_code) }),
    }),
    route({
      method: "POST",
      path: "/api/token/code/",
      access: "public",
      name: "token_code_create",
      fresh: false,
      summary:
        "Exchange the code that a browser on the same machine brought (RFC 8252), with the PKCE verifier",
      takes: body(v.strictObject({ code: secret, code_verifier: secret })),
      answers: pair,
      errors: ["sign_in_expired", "invalid_credentials"],
      handle: async (call, { code, code_verifier: verifier }) => ({
        body: await useLoginCode(services, { code, verifier }, fromOf(call)),
      }),
    }),
  ];
}

const mustSignIn = "Only a signed-in browser signs in the command line.";

/** Approvals need a browser that is signed in, and a fresh second factor of users who have one. */
function browserRoutes(services: Services): Route[] {
  const path = "/api/user/device_requests/";
  return [
    route({
      method: "POST",
      path: "/api/user/login_codes/",
      access: "person",
      fresh: true,
      name: "user_login_codes_create",
      summary: "A code that signs in the command line on the machine of this browser",
      takes: body(v.strictObject({ code_challenge: Challenge })),
      answers: { 201: { description: "The code, for a minute", schema: v.object({ code: v.string() }) } },
      handle: async (call, { code_challenge }) =>
        created({ code: await makeLoginCode(services, browserOf(call, mustSignIn), code_challenge) }),
    }),
    route({
      method: "POST",
      path: `${path}find/`,
      access: "person",
      name: "user_device_requests_find",
      fresh: false,
      summary: "The machine that shows this code",
      takes: body(v.strictObject({ user_code: UserCode })),
      answers: { 200: { description: "The machine", schema: DeviceRequest } },
      errors: ["not_found", "throttled"],
      handle: async (call, { user_code }) => ({
        body: await findDeviceRequest(services, browserOf(call, mustSignIn), user_code),
      }),
    }),
    route({
      method: "POST",
      path: `${path}decide/`,
      access: "person",
      fresh: true,
      name: "user_device_requests_decide",
      summary: "Sign in the machine that shows this code as the own user, or refuse it",
      takes: body(v.strictObject({ user_code: UserCode, approve: v.boolean() })),
      answers: { 204: { description: "Decided" } },
      errors: ["not_found", "throttled"],
      async handle(call, { user_code: code, approve: isApproved }) {
        await decideDeviceRequest(services, browserOf(call, mustSignIn), { code, isApproved }, actorOf(call));
        return noContent;
      },
    }),
  ];
}
