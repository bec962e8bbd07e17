// `agent admin session …`: the browsers and command lines in which a user is signed in: your own, those of a member, or for staff those
// of any user.

import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Context, Implementation } from "../../command.ts";
import { switchFlag, valueFlag, wordArg } from "../../values.ts";
import { request } from "../../../api/request.ts";
import { memberSessionsApi, ownSessionsApi, userSessionsApi } from "../../../api/sessions.ts";
import { read, write, type Api } from "../api.ts";
import { idOf, memberByEmail, userByEmail } from "../lookup.ts";

const notes = `Without --user: your own sessions, those of the user who is signed in with \`${brand.executable} login\`. With --org and --user: those of
a member, for administrators of the organization. With --user alone: those of any user, for staff. A session is for all
organizations of its user, so it ends in all of them. NODES lists the nodes whose machine proved that the command line is
signed in there. When one of them is revoked, the session ends.`;

const userFlags = {
  org: valueFlag("ORG", "With --user: an organization of that user"),
  user: valueFlag("EMAIL", "A member of the organization; without --org any user, for staff (default: you)"),
};

/** `slug` undefined: staff ask. */
type OtherUser = { email: string; slug: string | undefined };

/** The user that the flags name; undefined: you. */
function otherUserOf({ values }: Context): OtherUser | undefined {
  const [slug, email] = [values.text("org"), values.text("user")];
  if (email !== undefined) return { email, slug };
  if (slug !== undefined) throw new AppError("usage", "Give --user with --org");
  return undefined;
}

async function memberParams(api: Api, slug: string, email: string) {
  return { slug, id: (await memberByEmail(api, slug, email)).id };
}

const userParams = async (api: Api, email: string) => ({ id: (await userByEmail(api, email)).id });

async function sessionsOf(api: Api, other: OtherUser | undefined) {
  if (other === undefined) return api.all(ownSessionsApi.list, {});
  const { email, slug } = other;
  if (slug === undefined) return api.all(userSessionsApi.list, await userParams(api, email));
  return api.all(memberSessionsApi.list, await memberParams(api, slug, email));
}

export const list: Implementation = {
  notes,
  args: userFlags,
  examples: [
    `${brand.executable} admin session list`,
    `${brand.executable} admin session list --org acme --user ada@example.org`,
  ],
  async run(context) {
    const other = otherUserOf(context);
    const sessions = await read(context, (api) => sessionsOf(api, other));
    context.output.list(
      { sessions },
      {
        columns: ["ID", "KIND", "DEVICE", "ADDRESS", "SINCE", "LAST USE", "NODES"],
        rows: sessions.map((each) => [
          each.id,
          // Older control planes list browsers only.
          each.kind === "command_line" ? "command line" : "browser",
          each.device,
          each.address,
          each.created_at,
          each.last_used_at,
          (each.nodes ?? []).map(({ org_slug, name }) => `${name} (${org_slug})`).join(", "),
        ]),
        none: `${other === undefined ? "You are" : `${other.email} is`} signed in nowhere.`,
      },
    );
  },
};

export const revoke: Implementation = {
  notes,
  args: {
    ID: wordArg(`Number from \`${brand.executable} admin session list\``, { required: false }),
    all: switchFlag("With --user: sign the user out everywhere"),
    ...userFlags,
  },
  examples: [
    `${brand.executable} admin session revoke 7`,
    `${brand.executable} admin session revoke --all --org acme --user ada@example.org`,
  ],
  async run(context) {
    const [word] = context.words;
    const other = otherUserOf(context);
    const isAll = context.values.on("all");
    if ((word === undefined) !== isAll || (isAll && other === undefined))
      throw new AppError("usage", "Give the ID of a session, or --all with --user");
    const what = isAll ? `all sessions of ${other?.email}` : `session ${word}`;
    const gone = await write(context, async (api) => ({
      ...(await endRequest(api, word, other)),
      effect: `end ${what}`,
    }));
    if (gone === undefined) return;
    if (word === undefined)
      return context.output.result(
        { user: other?.email, all: true },
        `All sessions of ${other?.email} have ended\n`,
      );
    context.output.result({ id: Number(word) }, `Session ${word} has ended\n`);
  },
};

/** The request that ends the session of this number, or without one all of another user. */
async function endRequest(api: Api, word: string | undefined, other: OtherUser | undefined) {
  if (other === undefined) return request(ownSessionsApi.delete, { id: await sessionId(word) });
  const { email, slug } = other;
  if (slug === undefined) {
    const params = await userParams(api, email);
    if (word === undefined) return request(userSessionsApi.deleteAll, params);
    return request(userSessionsApi.delete, { ...params, session: await sessionId(word) });
  }
  const params = await memberParams(api, slug, email);
  if (word === undefined) return request(memberSessionsApi.deleteAll, params);
  return request(memberSessionsApi.delete, { ...params, session: await sessionId(word) });
}

/** Sessions have no names: anything but a number is not found. */
const sessionId = (word = "") =>
  idOf(word, { what: "session", listing: "session list", list: async () => [], nameOf: () => null });
