// Handlers of src/api/command-line.ts.

import type { commandLineApi } from "../../api/command-line.ts";
import { actorOf } from "../audit/record.ts";
import type { Handlers } from "../http/attach.ts";
import type { Services } from "../services.ts";
import { browserOf } from "./sessions/browser-sessions.ts";
import {
  beginDeviceSignIn,
  decideDeviceRequest,
  findDeviceRequest,
  pollDeviceSignIn,
} from "./sessions/device-sign-in.ts";
import { fromOf } from "./sessions/families.ts";
import { makeLoginCode, useLoginCode } from "./sessions/login-codes.ts";

const mustSignIn = "Only a signed-in browser signs in the command line.";

export const commandLineHandlers = (services: Services): Handlers<typeof commandLineApi> => ({
  begin: async (call, { machine }) => ({
    body: await beginDeviceSignIn(services, machine, call.address),
  }),
  poll: async (_call, { device_code }) => ({ body: await pollDeviceSignIn(services, device_code) }),
  exchange: async (call, { code, code_verifier: verifier }) => ({
    body: await useLoginCode(services, { code, verifier }, fromOf(call)),
  }),
  createCode: async (call, { code_challenge }) => ({
    body: { code: await makeLoginCode(services, browserOf(call, mustSignIn), code_challenge) },
  }),
  find: async (call, { user_code }) => ({
    body: await findDeviceRequest(services, browserOf(call, mustSignIn), user_code),
  }),
  async decide(call, { user_code: code, approve: isApproved }) {
    await decideDeviceRequest(services, browserOf(call, mustSignIn), { code, isApproved }, actorOf(call));
  },
});
