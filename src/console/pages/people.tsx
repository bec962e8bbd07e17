// Members of the organization and open invitations.

import { apiPath, type Role } from "../../api/endpoint.ts";
import { membersApi, type ListedMember as Member, type NewMember } from "../../api/members.ts";
import "../core.ts";
import { useState } from "preact/hooks";
import { memberSessionsApi } from "../../api/sessions.ts";
import { call } from "../api.ts";
import { mayAdminister, me, organization, slug } from "../me.ts";
import { removedWords } from "../removed-words.ts";
import { refresh } from "../resource.ts";
import { pathOf } from "../router.ts";
import { tell } from "../ui/told.tsx";
import { Choice, FormFailure, Text, useAction } from "../ui/form.tsx";
import { List, textColumn } from "../ui/list.tsx";
import { Confirm, Dialog } from "../ui/dialog.tsx";
import { FromTerminal, Line, State, When } from "../ui/parts.tsx";
import type { Column } from "../ui/rows.tsx";
import { timeColumn } from "../ui/time-column.ts";
import { SessionList, type SessionsPath } from "./session-list.tsx";
import { OwnerNumber, useEnding } from "./user-fields.tsx";

type Asked =
  "invite" | { invite: Member } | { change: Member } | { remove: Member } | { sessions: Member } | undefined;

const membersPath = (own: string) => apiPath(membersApi.list, { slug: own });

const roles: readonly (readonly [Role, string])[] = [
  ["member", "Member: reads, and manages own machines"],
  ["admin", "Administrator: changes machines, rules and settings"],
  ["owner", "Owner: also names owners, and deletes the organization"],
];

export function People() {
  const own = slug.value ?? "";
  const [asked, ask] = useState<Asked>(undefined);
  const close = () => ask(undefined);
  const columns: Column<Member>[] = [
    textColumn("email", "E-mail", 4, ({ email }) => email),
    textColumn("role", "Role", 1, ({ role }) => role),
    {
      key: "state",
      title: "State",
      width: 2,
      text: ({ state, is_disabled }) => (is_disabled ? "disabled" : state),
      cell: ({ state, expires_at, is_disabled }) =>
        is_disabled ? (
          <State name="revoked" word="disabled" />
        ) : state === "active" ? (
          <State name="online" word="active" />
        ) : (
          <>
            <State name="limited" word="invited" />
            <span class="quiet">
              ends <When at={expires_at} />
            </span>
          </>
        ),
    },
    timeColumn("since", "Since", ({ created_at }) => created_at),
    {
      key: "machines",
      title: "Machines",
      width: 1,
      text: ({ node_count }) => `${node_count}`,
      cell: ({ user_id, email, node_count }) =>
        node_count === 0 ? (
          <span class="quiet">0</span>
        ) : (
          <a href={`${pathOf(own, "nodes")}?owner=${user_id}`}>
            {node_count}
            <span class="unseen"> machines of {email}</span>
          </a>
        ),
      compare: (a, b) => a.node_count - b.node_count,
    },
    ...(mayAdminister.value ? [actions(ask)] : []),
  ];
  return (
    <>
      <h1>Members</h1>
      <List
        label="Members"
        path={membersPath(own)}
        columns={columns}
        keyOf={({ id }: Member) => id}
        empty="There are no members yet."
        command={["member", "list", own]}
      >
        {mayAdminister.value ? (
          <button type="button" class="primary" onClick={() => ask("invite")}>
            Invite
          </button>
        ) : null}
      </List>
      {asked === "invite" ? <Invite close={close} /> : null}
      {typeof asked === "object" && "invite" in asked ? <Invite again={asked.invite} close={close} /> : null}
      {typeof asked === "object" && "change" in asked ? <Change member={asked.change} close={close} /> : null}
      {typeof asked === "object" && "sessions" in asked ? (
        <Sessions member={asked.sessions} close={close} />
      ) : null}
      {typeof asked === "object" && "remove" in asked ? <Remove member={asked.remove} close={close} /> : null}
    </>
  );
}

function actions(ask: (asked: Asked) => void): Column<Member> {
  return {
    key: "actions",
    title: "Actions",
    width: 3,
    text: () => "",
    cell: (member) =>
      // Owners are changed by owners.
      member.role === "owner" && organization.value?.role !== "owner" ? (
        ""
      ) : (
        <>
          {member.state === "active" ? (
            <>
              <button type="button" class="small" onClick={() => ask({ change: member })}>
                Role<span class="unseen"> of {member.email}</span>
              </button>
              <button type="button" class="small" onClick={() => ask({ sessions: member })}>
                Sessions<span class="unseen"> of {member.email}</span>
              </button>{" "}
            </>
          ) : (
            <>
              <button type="button" class="small" onClick={() => ask({ invite: member })}>
                New link or role<span class="unseen"> for {member.email}</span>
              </button>{" "}
            </>
          )}
          <button type="button" class="small" onClick={() => ask({ remove: member })}>
            {member.state === "active" ? "Remove" : "Withdraw"}
            <span class="unseen"> {member.email}</span>
          </button>
        </>
      ),
  };
}

const offered = () => roles.filter(([role]) => role !== "owner" || organization.value?.role === "owner");
const changed = () => refresh(membersPath(slug.value ?? ""));

/** `again`: the member whose link was lost, or did not arrive. */
function Invite({ again, close }: { again?: Member; close(): void }) {
  const own = slug.value ?? "";
  const [email, setEmail] = useState(again?.email ?? "");
  const [role, setRole] = useState<Role>(again?.role ?? "member");
  const [made, setMade] = useState<NewMember | undefined>(undefined);
  const { error, isRunning, submit } = useAction(async () => {
    setMade(await call(membersApi.create, { slug: own }, { email, role }));
    await changed();
  });
  if (made !== undefined)
    return (
      <Dialog
        title={made.state === "active" ? "Added" : "Invited"}
        close={made.link === undefined ? close : () => undefined}
      >
        {made.link === undefined ? (
          <p>
            <bdi>{made.email}</bdi>
            {made.state === "active" ? "is a member now." : "gets the link by e-mail."}
          </p>
        ) : (
          <>
            <p>
              No e-mail was sent. Hand this link to <bdi>{made.email}</bdi> over a channel that you trust. It
              is shown only now, works once, replaces any link that you made for this address before, and ends{" "}
              <When at={made.expires_at} />.
            </p>
            <Line text={made.link} />
          </>
        )}
        <div class="actions">
          <button type="button" class="primary" onClick={close}>
            Done
          </button>
        </div>
      </Dialog>
    );
  return (
    <Dialog
      title={again === undefined ? "Invite a member" : `New link for ${again.email}`}
      close={close}
      hasUnsaved={email !== (again?.email ?? "")}
    >
      <form onSubmit={submit}>
        {again === undefined ? null : <p>The link that was made before stops working.</p>}
        <Text
          label="E-mail"
          errors={error?.fields["email"]}
          value={email}
          set={setEmail}
          control={{ type: "email", required: true, autocomplete: "off", readonly: again !== undefined }}
        />
        <Choice label="Role" value={role} set={setRole} choices={offered()} errors={error?.fields["role"]} />
        <FormFailure error={error} shown={["email", "role"]} />
        <div class="actions">
          <button class="primary" disabled={isRunning}>
            {again === undefined ? "Invite" : "Make the link"}
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
        <FromTerminal
          command={["member", "create", own, email, "--role", role]}
          call={["POST", membersPath(own), { email, role }]}
        />
      </form>
    </Dialog>
  );
}

function Change({ member, close }: { member: Member; close(): void }) {
  const own = slug.value ?? "";
  const params = { slug: own, id: member.id };
  const [role, setRole] = useState<Role>(member.role);
  const [userId, setUserId] = useState("");
  const body = { role, ...(userId === "" ? {} : { owner_id: Number(userId) }) };
  const { error, isRunning, submit } = useAction(async () => {
    await call(membersApi.update, params, body);
    await changed();
    close();
    tell(`${member.email}: the role is ${role} now.`);
  });
  return (
    <Dialog title={`Role of ${member.email}`} close={close}>
      <form onSubmit={submit}>
        <Choice label="Role" value={role} set={setRole} choices={offered()} errors={error?.fields["role"]} />
        <OwnerNumber error={error} value={userId} set={setUserId} />
        {member.role === "member" ? null : (
          <p class="quiet">
            Tokens, machines and webhooks of a former administrator stay; their open invitations end.
          </p>
        )}
        <FormFailure error={error} shown={["role"]} />
        <div class="actions">
          <button class="primary" disabled={isRunning || role === member.role}>
            Change the role
          </button>
          <button type="button" onClick={close}>
            Cancel
          </button>
        </div>
        <FromTerminal
          command={["member", "update", own, member.email, "--role", role]}
          call={["PATCH", apiPath(membersApi.update, params), body]}
        />
      </form>
    </Dialog>
  );
}

function Sessions({ member, close }: { member: Member; close(): void }) {
  const own = slug.value ?? "";
  const params = { slug: own, id: member.id };
  const list: SessionsPath = (...query) => apiPath(memberSessionsApi.list, params, ...query);
  return (
    <Dialog title={`Sessions of ${member.email}`} close={close}>
      <SessionList
        list={list}
        endOne={(session: number) => call(memberSessionsApi.delete, { ...params, session })}
        endAll={() => call(memberSessionsApi.deleteAll, params)}
        command={["session", "list", "--org", own, "--user", member.email]}
      />
      <div class="actions">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function Remove({ member, close }: { member: Member; close(): void }) {
  const own = slug.value ?? "";
  const { fields, body, flags } = useEnding(member.node_count);
  const isInvited = member.state === "invited";
  const params = { slug: own, id: member.id };
  const query = {
    revoke_nodes: `${body.revoke_nodes}`,
    revoke_tokens: `${body.revoke_tokens}`,
    report: "true",
  } as const;
  const self = member.user_id === me.value?.id;
  return (
    <Confirm
      title={isInvited ? `Withdraw the invitation of ${member.email}?` : `Remove ${member.email}?`}
      action={isInvited ? "Withdraw the invitation" : `Remove ${member.email}`}
      effect={
        <>
          <p>
            {isInvited
              ? "The link stops working. You can invite the address again."
              : `${self ? "This is you: you lose" : "The user loses"} all access to ${own} within seconds, and open invitations that ${self ? "you" : "they"} sent end. An invitation brings ${self ? "you" : "them"} back.`}
          </p>
          {isInvited ? null : (
            <>
              <p>
                The user can still sign in to this control plane, and to other organizations.{" "}
                {me.value?.is_staff === true ? (
                  <>
                    To end that, disable the user under <a href={pathOf("-", "users")}>Users</a>.
                  </>
                ) : (
                  "Staff of the control plane can disable the user."
                )}
              </p>
              {fields}
            </>
          )}
          <FromTerminal
            command={["member", "delete", own, member.email, ...flags]}
            call={["DELETE", apiPath(membersApi.delete, params, query)]}
          />
        </>
      }
      run={async () => {
        const report = await call(membersApi.delete, params, query);
        await changed();
        tell(
          isInvited || report === undefined
            ? `The invitation of ${member.email} is withdrawn.`
            : removedWords(member.email, report, me.value?.is_staff === true),
        );
      }}
      close={close}
    />
  );
}
