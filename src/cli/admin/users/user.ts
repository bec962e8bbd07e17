// `agent admin user …`: users of the control plane.

import { request } from "../../../api/request.ts";
import { NewPassword, ownUserApi, usersApi, userSettings } from "../../../api/users.ts";
import { Email } from "../../../api/values.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import type { Admin } from "../../../server/admin.ts";
import type { Context, Implementation } from "../../command.ts";
import { leaverEnds, leaverFlags, resultOfEnding, tokensOf } from "./left-access.ts";
import { readNamedFile, valueFlag, wordArg } from "../../values.ts";
import { read, write } from "../api.ts";
import { onData, onlyPlanned } from "../data.ts";
import { userByEmail } from "../lookup.ts";
import { settingFlags } from "../setting-flags.ts";
import { chooseTarget } from "../target.ts";

const emailArg = { EMAIL: wordArg("The user's e-mail address") };
const passwordFile = valueFlag("FILE", "Read the password from a file (- is standard input)");

/** Reads a password from a file, standard input or the terminal, where a new one is typed twice. */
export async function readPassword(
  { values, system }: Context,
  { flag = "password-file", text = "Password: ", isNew = true } = {},
): Promise<string> {
  const file = values.text(flag);
  if (file !== undefined) return readNamedFile(flag, file, system);
  if (!system.stdinIsTerminal) {
    throw new AppError("usage", `Give the password with --${flag} (- is standard input)`);
  }
  const { askSecret } = await import("../../ask.ts");
  return askSecret({ text, isNew }, system);
}

async function readLogin(context: Context): Promise<{ email: string; password: string }> {
  const { parse } = await import("../../../server/http/parse-input.ts");
  const v = await import("valibot");
  const address = context.words[0] ?? "";
  return parse(v.object({ email: Email, password: NewPassword }), {
    email: address,
    password: await readPassword(context),
  });
}

export const create: Implementation = {
  args: {
    ...emailArg,
    ...settingFlags(userSettings),
    "password-file": passwordFile,
  },
  examples: [`${brand.executable} admin user create ada@example.org --staff`],
  async run(context) {
    const body = { ...(await readLogin(context)), is_staff: context.values.on(userSettings.is_staff.flag) };
    const user = await write(context, () => request(usersApi.create, {}, body), { mayCreateData: true });
    if (user === undefined) return;
    context.output.result(user, `Created user ${user.email}${user.is_staff ? " (staff)" : ""}\n`);
  },
};

export const list: Implementation = {
  examples: [`${brand.executable} admin user list`],
  async run(context) {
    const users = await read(context, (api) => api.all(usersApi.list, {}));
    context.output.list(
      { users },
      {
        columns: ["EMAIL", "STATE", "STAFF", "LAST SIGN-IN"],
        rows: users.map((user) => [
          user.email,
          user.is_active ? "active" : { text: "disabled", mark: "bad" },
          user.is_staff ? "staff" : "-",
          user.last_login_at ?? { text: "never", mark: "faint" },
        ]),
        none: "There are no users.",
      },
    );
  },
};

function activationCommand(verb: "enable" | "disable"): Implementation {
  const isEnabled = verb === "enable";
  return {
    args: { ...emailArg, ...(isEnabled ? {} : leaverFlags) },
    examples: [`${brand.executable} admin user ${verb} ada@example.org`],
    async run(context) {
      const address = context.words[0] ?? "";
      const body = { is_active: isEnabled, ...(isEnabled ? {} : leaverEnds(context.values)) };
      const report = await write(context, async (api) =>
        request(usersApi.update, { id: (await userByEmail(api, address)).id }, body),
      );
      if (report === undefined) return;
      const done = `User ${address} is ${verb}d`;
      if (isEnabled) context.output.result({ email: address, is_active: true }, `${done}\n`);
      else
        resultOfEnding(
          context.output,
          { subject: address, fields: { ...report, ...tokensOf(report) }, done },
          report,
        );
    },
  };
}

export const enable = activationCommand("enable");
export const disable = activationCommand("disable");

export const password: Implementation = {
  notes: `The passwords of all users can be set on the machine of the control plane. Over the network, a user sets only
the own one, and proves the current one: with the passwords of others, staff could act as any owner.`,
  args: {
    ...emailArg,
    "password-file": passwordFile,
    "current-password-file": valueFlag("FILE", "Over the network: read the current password from a file"),
  },
  examples: [`${brand.executable} admin user password ada@example.org`],
  async run(context) {
    const target = await chooseTarget(context);
    if (target.kind === "remote") return ownPassword(context);
    const { findUser } = await import("../../../server/users/users.ts");
    const { setPassword } = await import("../../../server/users/sign-in/set-password.ts");
    const { operator } = await import("../../../server/audit/record.ts");
    const login = await readLogin(context);
    if (await onlyPlanned(context)) return;
    const work = async (admin: Admin) => {
      const user = await findUser(admin.db, login.email);
      await setPassword(admin, user.id, login.password, operator);
    };
    await onData(context, work, { writes: true });
    context.output.result({ email: login.email }, `User ${login.email} has a new password\n`);
  },
};

export const resetFactors: Implementation = {
  notes:
    "Works only on the machine of the control plane: with it, staff could sign in as others whose password they know.",
  args: emailArg,
  examples: [`${brand.executable} admin user reset-factors ada@example.org --local`],
  async run(context) {
    const { findUser } = await import("../../../server/users/users.ts");
    const { resetFactors: reset } = await import("../../../server/users/factors/own-factors.ts");
    const { operator } = await import("../../../server/audit/record.ts");
    const [address = ""] = context.words;
    if (await onlyPlanned(context)) return;
    const work = async (admin: Admin) => {
      const { id, email } = await findUser(admin.db, address);
      await reset(admin, { userId: id, email }, operator);
    };
    await onData(context, work, { writes: true });
    context.output.result({ email: address }, `User ${address} has no second factor any more\n`);
  },
};

async function ownPassword(context: Context): Promise<void> {
  const address = (context.words[0] ?? "").trim().toLowerCase();
  const { email } = await read(context, (api) => api.call(ownUserApi.retrieve, {}));
  if (email !== address) {
    throw new AppError(
      "permission_denied",
      `You are ${email}: over the network, you set only your own password`,
      {
        hint: `On the machine of the control plane: \`${brand.executable} admin user password EMAIL --local\`.`,
      },
    );
  }
  const current = await readPassword(context, {
    flag: "current-password-file",
    text: "Current password: ",
    isNew: false,
  });
  const body = { current_password: current, new_password: (await readLogin(context)).password };
  const changed = await write(context, () => request(ownUserApi.changePassword, {}, body));
  if (changed === undefined) return;
  context.output.say(`All sessions have ended. Sign in again with \`${brand.executable} login\`.`);
  context.output.result({ email }, `User ${email} has a new password\n`);
}
