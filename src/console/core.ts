// Imports of the frame and most pages. Each page imports this file: the bundler makes a file for every set of pages
// that share something, and so puts all of it into one. A browser has six connections, so fifteen small files need
// three rounds.

import "./access/rules.ts";
import "./activity/actor.ts";
import "./needs/authorities.ts";
import "./joining/due-phones.tsx";
import "./words/field-parts.ts";
import "./providers/leaving.ts";
import "./activity/member-names.ts";
import "./activity/named-nodes.ts";
import "./node/neighbours.ts";
import "./node/path-drawings.tsx";
import "./nodes/node-list.ts";
import "./nodes/states.ts";
import "./nodes/own-nodes.tsx";
import "./pages/groups-field.tsx";
import "./pages/user-fields.tsx";
import "./providers/provider-words.ts";
import "./providers/providers.ts";
import "./pages/removed-words.ts";
import "./activity/rule-change.ts";
import "./frame/step-up.tsx";
import "./joining/token-words.ts";
import "./ui/bulk.tsx";
import "./ui/dialog.tsx";
import "./ui/lists/list.tsx";
import "./nodes/awaited-nodes.tsx";
import "./ui/menu.tsx";
import "./ui/page.tsx";
import "./ui/tag.tsx";
import "./ui/lists/time-column.ts";
import "./ui/told.tsx";
import "./frame/unsaved.ts";
import "./needs/use-needs.ts";
