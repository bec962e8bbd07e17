// Calls the API of the command's target. An admin command is one request and one rendering: `read` answers questions,
// `write` sends one change, and names the target.

import { organizationsApi } from "../../api/organizations.ts";
import * as v from "valibot";
import {
  filledPath,
  roles,
  type AnswerOf,
  type Endpoint,
  type CallInput,
  type ItemOf,
  type Params,
} from "../../api/endpoint.ts";
import { factorsApi } from "../../api/factors/factors.ts";
import { readerOf, request, type Request } from "../../api/request.ts";
import { maxPageSize } from "../../api/values.ts";
import { AppError } from "../../base/errors.ts";
import type { Answer, ApiRequest } from "../../node/contact/requests/send-request.ts";
import type { Client } from "../../node/contact/requests/client.ts";
import type { Profile } from "../../node/files/profiles.ts";
import type { Step } from "../../base/plan/plan.ts";
import type { Context } from "../command.ts";
import { readCode } from "../one-time-code.ts";
import { effectOf } from "./effect.ts";
import { explainRefusal } from "./explain-refusal.ts";
import { chooseTarget, requireLocalData, sayTarget, type Target } from "./target.ts";

export type Api = {
  call<const E extends Endpoint>(of: E, params: Params<E>, ...given: CallInput<E>): Promise<AnswerOf<E>>;
  /** All pages of a list. */
  all<const E extends Endpoint>(of: E, params: Params<E>, ...given: CallInput<E>): Promise<ItemOf<E>[]>;
};

type Effect = {
  /** What --dry-run prints after "Would", if the request does not show it. */
  effect?: string;
  /** Called with the headers of the answer, before `write` returns. */
  heard?(headers: Headers): void;
};
export type Prepared<T> = Effect & Request<T>;
/** `null`: an answer without a body. */
type Written<T> = Exclude<T, undefined> | (undefined extends T ? null : never);

/** A list of 1000 nodes has about 1 MiB. */
const maxBytes = 32 * 1024 * 1024;

type Sender = <T>(request: ApiRequest<T>) => Promise<Answer<T>>;

/** Runs `work` with the API of the target. */
export async function read<T>(context: Context, work: (api: Api) => Promise<T>): Promise<T> {
  const target = await chooseTarget(context);
  return withSender(context, target, {}, (send) => work(apiOf(send)));
}

/**
 * Sends the change that `prepare` returns, and returns its answer. With --dry-run it prints the plan instead and returns
 * undefined. `mayCreateData`: the local data may be created.
 */
export async function write<T>(
  context: Context,
  prepare: (api: Api) => Prepared<T> | Promise<Prepared<T>>,
  options?: { mayCreateData?: boolean },
): Promise<Written<T> | undefined>;
// The overload above types the answer for callers; in here it is unknown.
export async function write(
  context: Context,
  prepare: (api: Api) => Prepared<unknown> | Promise<Prepared<unknown>>,
  { mayCreateData = false } = {},
): Promise<unknown> {
  const { settings } = context;
  const target = await chooseTarget(context);
  if (settings.dryRun) return plan(context, target, prepare, { mayCreateData });
  if (target.kind === "local" && !mayCreateData) await requireLocalData(context, target.options);
  sayTarget(target, context);
  return withSender(context, target, { mayCreateData }, async (send) => {
    const { effect: _, heard, ...change } = await prepare(apiOf(send));
    const { body, headers } = await send(change);
    heard?.(headers);
    // A deletion answers nothing.
    return body ?? null;
  });
}

/** Only the request itself meets all checks of the control plane, and it would carry out the change. */
const uncheckedNote =
  "Not checked: whether the control plane refuses this for another reason than your role. Without --dry-run, it checks that first.";

/**
 * Throws permission_denied if the endpoint needs a higher role. `role`: the caller's; null, for staff without a membership and
 * the operator, is enough. `name`: of the target.
 */
function requireRole(access: Endpoint["access"], role: string | null, name: string): void {
  // From the weakest to the strongest; -1 for access that no role decides about.
  const neededRank = roles.findIndex((each) => each === access);
  const ownRank = roles.findIndex((each) => each === role);
  if (ownRank === -1 || ownRank >= neededRank) return;
  throw new AppError("permission_denied", `This needs the role ${access}, and yours is ${role}: ${name}`);
}

/** Prints what the change would do. The control plane is only read. */
async function plan(
  context: Context,
  target: Target,
  prepare: (api: Api) => Prepared<unknown> | Promise<Prepared<unknown>>,
  { mayCreateData }: { mayCreateData: boolean },
): Promise<undefined> {
  const { planData, hasData } = await import("../../server/store/data-directory.ts");
  const isLocal = target.kind === "local";
  const steps: Step[] = isLocal ? planData(target.options, context.system) : [];
  // Without data there is nothing to read.
  if (!(isLocal && mayCreateData && !hasData(target.options))) {
    await withSender(context, target, {}, async (send) => {
      const api = apiOf(send);
      const change = await prepare(api);
      const [, slug] = /^\/api\/org\/([^/]+)\//.exec(change.path) ?? [];
      if (slug !== undefined) {
        const params = { slug: decodeURIComponent(slug) };
        requireRole(change.access, (await api.call(organizationsApi.retrieve, params)).role, target.name);
      }
      const { method, path, effect = effectOf(change) } = change;
      if (!context.output.json) context.output.say(`Would ${effect}\n${uncheckedNote}`);
      if (!isLocal) steps.push({ step: "request", method, url: target.profile.api_base + path });
    });
  }
  context.output.plan(steps);
  return undefined;
}

/** `repeatable`: sent again after a failure of the network. What commands send by this may arrive twice. */
function apiOf(send: Sender): Api {
  return {
    call: async (of, params, ...given) =>
      bodyOf(await send({ ...request(of, params, ...given), maxBytes, repeatable: true })),
    async all<const E extends Endpoint>(of: E, params: Params<E>, ...[given]: CallInput<E>) {
      const found: ItemOf<E>[] = [];
      const reader = readerOf(of);
      const schema = v.custom<ItemOf<E>[]>((value) => v.is(reader, value));
      for (let page = 1; ; page++) {
        const query = { page, page_size: maxPageSize, ...Object(given) };
        const answer = await send({
          path: filledPath(of.path, params, query),
          schema,
          maxBytes,
          repeatable: true,
        });
        found.push(...bodyOf(answer));
        if (!(answer.headers.get("Link") ?? "").includes('rel="next"')) return found;
      }
    },
  };
}

function bodyOf<T>({ body, status }: Answer<T>): T {
  if (body !== undefined) return body;
  throw new AppError("untrusted_answer", `The control plane answered ${status} without a body`);
}

/** Runs `work` with a function that sends requests to the target, and explains its refusals. */
export async function withSender<T>(
  context: Context,
  target: Target,
  { mayCreateData = false },
  work: (send: Sender) => Promise<T>,
): Promise<T> {
  const { system, log } = context;
  const { makeClient } = await import("../../node/contact/requests/client.ts");
  /** Sends by the client, and adds to a refusal what to do next. */
  const withHints =
    (client: Client): Sender =>
    async (request) => {
      try {
        return await client.request(request);
      } catch (error) {
        throw explainRefusal(error, request.path, target);
      }
    };
  if (target.kind === "local") {
    const { asOperator } = await import("../../server/operator.ts");
    if (!mayCreateData) await requireLocalData(context, target.options);
    return asOperator(target.options, { system, log }, (fetch) =>
      work(withHints(makeClient({ base: "http://localhost", system: { ...system, fetch } }))),
    );
  }
  const { profile, token } = target;
  if ("profile" in token) return work(await senderOfProfile(context, profile, token.profile, withHints));
  const { clientOf } = await import("../../node/contact/requests/session.ts");
  return work(withHints(clientOf(profile, system, token.given)));
}

/** Sends with the session of a profile: renews its token, and proves the second factor where the server asks for it. */
async function senderOfProfile(
  context: Context,
  profile: Profile,
  name: string,
  withHints: (client: Client) => Sender,
): Promise<Sender> {
  const { system } = context;
  const { clientOf, profileToken } = await import("../../node/contact/requests/session.ts");
  const onRenewed = async (access: string) => {
    const { proveSession } = await import("../prove-session.ts");
    await proveSession(context, profile, access);
  };
  let token = await profileToken(name, profile, system, { onRenewed });
  return async (request) => {
    try {
      return await withHints(clientOf(profile, system, token))(request);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      if (error.code === "step_up_required") await stepUp(context, clientOf(profile, system, token), error);
      else if (error.code === "token_not_valid") {
        // The server ended the token early, or replaced its key: try a new one once.
        token = await profileToken(name, profile, system, { refused: token, onRenewed });
      } else throw error;
      return withHints(clientOf(profile, system, token))(request);
    }
  };
}

/** Proves the second factor again for this session. Without a code, the refusal stands. */
async function stepUp(context: Context, client: Client, refusal: AppError): Promise<void> {
  const code = await readCode(context);
  if (code === undefined) {
    throw new AppError(refusal.code, refusal.message, {
      hint: "Run the command on a terminal, which asks for a code, or give one with --otp-file.",
    });
  }
  await client.request(request(factorsApi.prove, {}, { otp: code }));
}
