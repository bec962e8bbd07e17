// The browsers and command lines in which a user is signed in: the own ones on the page of the account, those of a
// member, and for staff of any user, in a dialog. Each can be ended.

import { useState } from "preact/hooks";
import { apiPath, type Path } from "../../api/endpoint.ts";
import { userSessionsApi, type Session } from "../../api/sessions.ts";
import { call } from "../contact/api.ts";
import { refresh, useList } from "../contact/resource.ts";
import { Button, CloseEnd } from "../ui/button.tsx";
import { actionsColumn, List, textColumn } from "../ui/lists/list.tsx";
import { Confirm, Dialog } from "../ui/dialog.tsx";
import type { AboutUser } from "../ui/lazy-parts.ts";
import type { Column } from "../ui/lists/rows.tsx";
import { Pill } from "../ui/tag.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { plural } from "../words/numbers.ts";
import { browserWords } from "./user-agent.ts";

export type SessionsPath = (query?: { page_size: string }) => Path<Session[]>;

type Props = {
  /** On a page; in a dialog, the dialog has it. */
  title?: string;
  list: SessionsPath;
  endOne(id: number): Promise<unknown>;
  /** The e-mail address of another user. Without it, the sessions are those of the user of this browser. */
  email?: string;
  /** Sessions of another user are all ended by one request. Without it, this browser stays signed in. */
  endAll?(): Promise<unknown>;
  /** Arguments of `agent admin`. */
  command: readonly string[];
};

/** The session in words, with the nodes of the machine that it proved to be on. */
const wordsOf = ({ kind, device, nodes }: Session) =>
  [
    kind === "browser" ? browserWords(device) : device || "command line",
    ...nodes.map(({ org_slug, name }) => `${name} (${org_slug})`),
  ].join(", ");

export function SessionList({ title, list, email, endOne, endAll, command }: Props) {
  const path = list();
  const { data = [] } = useList(list({ page_size: "1000" }));
  const [ending, setEnding] = useState<readonly Session[]>([]);
  const others = data.filter(({ is_current }) => !is_current);
  const [first] = ending;
  const [isAll, setAll] = useState(false);
  const askOne = (session: Session) => {
    setEnding([session]);
    setAll(false);
  };
  const askAll = () => {
    setEnding(others);
    setAll(true);
  };
  const all = endAll === undefined ? "Sign all others out" : "Sign out everywhere";
  return (
    <>
      <List
        label="Sessions"
        {...(title === undefined ? {} : { title })}
        path={path}
        columns={columnsFor(askOne)}
        keyOf={({ id }: Session) => id}
        empty="None."
        command={command}
      >
        {others.length === 0 ? null : (
          <Button isSmall={true} onClick={askAll}>
            {all}
          </Button>
        )}
      </List>
      {first === undefined ? null : (
        <Confirm
          title={isAll ? `${all}?` : "Sign out?"}
          action={isAll ? all : "Sign out"}
          effect={
            <p>
              {isAll ? (
                plural(ending.length, "session")
              ) : (
                <>
                  <bdi>{wordsOf(first)}</bdi> at <bdi>{first.address}</bdi>
                </>
              )}
              {email === undefined ? "" : " of "}
              <bdi>{email}</bdi> must sign in again.
            </p>
          }
          run={async () => {
            if (isAll && endAll !== undefined) await endAll();
            else for (const { id } of ending) await endOne(id);
            await refresh(path);
          }}
          close={() => setEnding([])}
        />
      )}
    </>
  );
}

type DialogProps = Props & { email: string; close(): void };

/** Of a user other than that of this browser, or of the own one among others. */
export const SessionsDialog = ({ close, ...props }: DialogProps) => (
  <Dialog title={`Sessions of ${props.email}`} width="800px" close={close}>
    <SessionList {...props} />
    <CloseEnd close={close} />
  </Dialog>
);

/** For staff: also of users who are members of no organization. */
export function UserSessions({ user: { id, email }, close }: AboutUser) {
  return (
    <SessionsDialog
      email={email}
      list={(...query) => apiPath(userSessionsApi.list, { id }, ...query)}
      endOne={(session) => call(userSessionsApi.delete, { id, session })}
      endAll={() => call(userSessionsApi.deleteAll, { id })}
      command={["session", "list", "--user", email]}
      close={close}
    />
  );
}

function columnsFor(end: (session: Session) => void): readonly Column<Session>[] {
  return [
    textColumn("device", "Browser or command line", 3, wordsOf),
    textColumn("address", "Address", 1.5, ({ address }) => address),
    timeColumn("made", "Signed in", ({ created_at }) => created_at),
    timeColumn("used", "Last used", ({ last_used_at }) => last_used_at),
    timeColumn("expires", "Ends", ({ expires_at }) => expires_at),
    actionsColumn(2, (session) =>
      session.is_current ? (
        <Pill kind="accent">this browser</Pill>
      ) : (
        <Button isSmall={true} onClick={() => end(session)}>
          Sign out
        </Button>
      ),
    ),
  ];
}
