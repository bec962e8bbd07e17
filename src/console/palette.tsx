// The command palette (Ctrl K): pages, organizations, actions, and machines by name or address. And the list of all keys (?).

import { nodesApi } from "../api/nodes.ts";
import { apiPath } from "../api/endpoint.ts";
import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, get } from "./api.ts";
import { isAdmin, mayAddOwn, me, organizations, shownOrganization } from "./me.ts";
import { organizationPages, otherPages, staffPages } from "./pages.ts";
import { go, pathOf } from "./router.ts";
import { Dialog } from "./ui/dialog.tsx";
import { valueOf } from "./ui/parts.tsx";

export const opened = signal<"palette" | "keys" | undefined>(undefined);
const close = () => {
  opened.value = undefined;
};

type Command = { title: string; hint: string; path: string };
const command = (title: string, path: string, hint = ""): Command => ({ title, hint, path });

/** The pages that the user may open, and those of other organizations. */
function commands(): Command[] {
  const shown = shownOrganization.value;
  const own = shown?.slug;
  const isStaff = me.value?.is_staff === true;
  const inside =
    own === undefined
      ? []
      : [
          ...Object.entries(organizationPages)
            .filter(([, { isForAdmins }]) => isForAdmins !== true || isAdmin(shown))
            .map(([segment, { title, letter }]) =>
              command(title, segment === "" ? pathOf(own) : pathOf(own, segment), letter && `g ${letter}`),
            ),
          ...(isAdmin(shown)
            ? [
                command("Add a machine", pathOf(own, "machines", "add")),
                command("Approve machines", pathOf(own, "machines", "waiting")),
              ]
            : []),
          ...(mayAddOwn.value ? [command("Phones", pathOf(own, "phones"))] : []),
        ];
  const others = organizations.value
    .filter((each) => each.slug !== own)
    .map(({ name, slug: other }) => command(name, pathOf(other), "organization"));
  const staff = Object.entries(isStaff ? staffPages : {}).map(([segment, { title }]) =>
    command(title, pathOf("-", segment), "control plane"),
  );
  return [...inside, ...others, ...staff, command(otherPages.account.title, pathOf("-", "account"))];
}

/**
 * Machines whose name, alias or address has the text, read a moment after the last key. Until then, the former
 * results.
 */
function useMachines(text: string): { machines: readonly Command[]; isSearching: boolean } {
  const own = shownOrganization.value?.slug;
  const [{ of, all }, find] = useState<{ of: string; all: readonly Command[] }>({ of: "", all: [] });
  useEffect(() => {
    const found = (all: readonly Command[] = []) => find({ of: text, all });
    if (own === undefined || text === "") return found();
    const over = new AbortController();
    const timer = setTimeout(() => {
      const path = apiPath(nodesApi.list, { slug: own }, { page_size: "8", search: text });
      get(path, over.signal).then(
        (nodes) =>
          found(
            nodes.map(({ id, name, ip_address }) => command(name, pathOf(own, "machines", id), ip_address)),
          ),
        (error: unknown) => {
          // The bar says that the control plane is away; pages are found without it.
          if (over.signal.aborted) return;
          if (!(error instanceof ApiError)) throw error;
          found();
        },
      );
    }, 100);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [own, text]);
  return { machines: all, isSearching: of !== text };
}

export function Palette(): VNode | null {
  if (opened.value === undefined) return null;
  return opened.value === "keys" ? <Keys /> : <Search />;
}

function Search() {
  const [text, type] = useState("");
  const [at, move] = useState(0);
  const words = text.trim().toLowerCase();
  const pages = useMemo(commands, []);
  const { machines, isSearching } = useMachines(words);
  const found = pages.filter(({ title }) => title.toLowerCase().includes(words));
  const shown = [...found, ...machines];
  const chosen = Math.min(at, shown.length - 1);
  const open = (command: Command | undefined) => {
    if (command === undefined) return;
    close();
    go(command.path);
  };
  // Enter came before the machine was found.
  const isAwaiting = useRef(false);
  useEffect(() => {
    if (isAwaiting.current && !isSearching) open(shown[0]);
    document.getElementById(`command-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [isSearching, chosen]);
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) move((chosen + step + shown.length) % Math.max(1, shown.length));
    else if (event.key === "Enter") {
      isAwaiting.current = isSearching && found[chosen] === undefined;
      if (!isAwaiting.current) open(shown[chosen]);
    } else return;
    event.preventDefault();
  };
  const change = (event: Event) => {
    type(valueOf(event));
    move(0);
    isAwaiting.current = false;
  };
  return (
    <Dialog title="Go to" close={close}>
      <input
        role="combobox"
        aria-label="Page or machine"
        aria-expanded="true"
        aria-controls="commands"
        aria-activedescendant={shown.length === 0 ? undefined : `command-${chosen}`}
        placeholder="Page or machine"
        maxlength={100}
        value={text}
        onInput={change}
        onKeyDown={press}
      />
      <ul id="commands" role="listbox" aria-label="Found" class="commands">
        {shown.map((command, place) => (
          <li
            key={command.path}
            id={`command-${place}`}
            role="option"
            aria-selected={place === chosen}
            onClick={() => open(command)}
          >
            <bdi>{command.title}</bdi> <span class="quiet">{command.hint}</span>
          </li>
        ))}
      </ul>
      <p class={shown.length === 0 ? "quiet" : "unseen"} role="status">
        {isSearching
          ? "Searching"
          : shown.length === 0
            ? "No page or machine has this in its name, alias or address."
            : `${shown.length} found`}
      </p>
    </Dialog>
  );
}

function Keys() {
  const pages = Object.values(organizationPages).flatMap(({ title, letter }) =>
    letter === undefined ? [] : [[`g ${letter}`, title] as const],
  );
  const all = [
    ["Ctrl K", "Go to a page or a machine"],
    ["/", "Search on the page: Enter or ↓ goes to the first row, Escape leaves it once it is empty"],
    ["j k", "Next and previous row of a list"],
    ["Enter", "Open the row"],
    ["Escape", "Close what is open"],
    ["?", "This list"],
    ...pages,
  ] as const;
  return (
    <Dialog title="Keys" close={close}>
      <dl class="keys">
        {all.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p class="quiet">Control plane {me.value?.server_version}</p>
      <div class="actions">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
