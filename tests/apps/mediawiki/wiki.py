"""MediaWiki on InnoDB and on Terrace: installed, its tables moved, then pages imported, edited, renamed, deleted and searched, and its
maintenance scripts run.

    wiki.py PORT SOURCE OUT

SOURCE is MediaWiki's directory, with the extensions that come with it."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from pair import Base, compare

PAGES = 80
EXTENSIONS = "CategoryTree,Cite,Interwiki,ParserFunctions,TemplateData"


def page(title, texts):
    revisions = "".join(
        f"<revision><timestamp>2023-0{1 + at}-01T00:00:{at:02}Z</timestamp><contributor><username>Importer</username></contributor><comment>of {title}, {at}</comment>"
        f"<model>wikitext</model><format>text/x-wiki</format><text>{text}</text></revision>" for at, text in enumerate(texts))
    return f"<page><title>{title}</title>{revisions}</page>"


def dump():
    """An export of pages with histories that link to each other, fall into categories and take in templates."""
    pages = [page("Template:Box", ["{{{1|nothing}}} [[Category:Boxed]]", "'''{{{1|nothing}}}''' [[Category:Boxed]] [https://example.org/box box]"])]
    for at in range(PAGES):
        text = (f"Page {at} is of the [[river {(at * 7) % PAGES}]] and [[Place {(at * 11 + 3) % PAGES}|a place]], [[nowhere {at}]]. {{{{Box|box {at % 13}}}}} [[Category:Kind {at % 9}]] "
                f"[https://example.org/{at} out]&lt;ref&gt;Zürich {at}, 中文 𐍈&lt;/ref&gt; " + f"word{at % 17} terrace flash object " * (at % 40))
        pages.append(page(f"{'River' if at % 2 else 'Place'} {at}", [text + f" version {one}" for one in range(1 + at % 4)]))
    return f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">{"".join(pages)}</mediawiki>'


def main():
    port, source, out = sys.argv[1:]
    with open(os.path.join(out, "pages.xml"), "w") as file:
        file.write(dump())
    with open(os.path.join(out, "moves.txt"), "w") as file:
        file.writelines(f"River {at}|Stream {at}\n" for at in range(1, 40, 2))
    with open(os.path.join(out, "gone.txt"), "w") as file:
        file.writelines(f"Place {at}\n" for at in range(50, 74, 2))
    pair = [Base(port, f"wiki_{engine.lower()}", engine) for engine in ("InnoDB", "Terrace")]
    for base in pair:
        settings, clock = os.path.join(out, base.name), [1_700_000_000]
        os.makedirs(settings, exist_ok=True)
        if os.path.exists(os.path.join(settings, "LocalSettings.php")):
            os.remove(os.path.join(settings, "LocalSettings.php"))

        def php(step, *arguments, conf=("--conf", os.path.join(settings, "LocalSettings.php")), **more):
            script, *rest = arguments
            if script == "runJobs.php":
                # Two jobs of one second are one, so how many there are (and what number the last of the table `job` has) is chance; what they make is not.
                more["heard"] = lambda line: "error" in line.lower()
            clock[0] += 10_000
            more["env"] = dict(os.environ, TERRACE_WIKI_CLOCK=str(clock[0]))
            base.run(step, ["php", os.path.join(source, "maintenance", script), *conf, *rest], **more)

        php("install", "install.php", "--dbtype=mysql", f"--dbserver=127.0.0.1:{port}", f"--dbname={base.name}", "--dbuser=root", "--dbpass=", "--installdbuser=root", "--installdbpass=",
            "--pass=of-no-worth-1", "--server=http://localhost", "--scriptpath=/wiki", f"--confpath={settings}", f"--extensions={EXTENSIONS}", "A wiki", "Keeper", conf=())
        with open(os.path.join(settings, "LocalSettings.php"), "a") as file:
            # Its clock ticks when it is asked: what is sorted by time, or put together by it, is the same in both.
            file.write("$wikiClock = (int) getenv('TERRACE_WIKI_CLOCK'); Wikimedia\\Timestamp\\ConvertibleTimestamp::setFakeTime(function () use (&$wikiClock) { return $wikiClock++; });\n")
            # Jobs come in the order in which they were put, or else by chance.
            file.write("$wgJobTypeConf = ['default' => ['class' => 'JobQueueDB', 'order' => 'fifo', 'claimTTL' => 3600]]; $wgJobRunRate = 0; $wgMainCacheType = CACHE_NONE; $wgShellLocale = 'C.UTF-8'; $wgShowExceptionDetails = true;\n")
        base.move()
        php("update", "update.php", "--quick")
        php("import", "importDump.php", "--no-updates", os.path.join(out, "pages.xml"))
        php("rebuild", "rebuildall.php")
        php("jobs", "runJobs.php")
        for at in range(4):
            php("edit", "edit.php", "--user=Keeper", "--summary=by hand", f"River {2 * at + 1}", input=f"Written anew, {at}: [[Place {at}]] [[Category:Anew]] terrace")
        php("rename", "moveBatch.php", "--u=Keeper", os.path.join(out, "moves.txt"))
        php("delete", "deleteBatch.php", "--u=Keeper", os.path.join(out, "gone.txt"))
        php("undelete", "undelete.php", "--user=Keeper", "Place 60")
        php("more jobs", "runJobs.php")
        php("user", "createAndPromote.php", "--sysop", "Second", "of-no-worth-2")
        php("roll back", "rollbackEdits.php", "--user=Keeper", "--titles=River 41|Stream 3")
        for script in ("refreshLinks.php", "rebuildrecentchanges.php", "initEditCount.php", "updateSpecialPages.php", "initSiteStats.php", "rebuildtextindex.php", "purgeParserCache.php"):
            more = {"initSiteStats.php": ["--update"], "purgeParserCache.php": ["--age=0"]}.get(script, [])
            php(script[:-4], script, *more)
        php("export", "dumpBackup.php", "--full", "--quiet")
        php("old revisions", "deleteOldRevisions.php", "--delete")
        php("read", "getText.php", "Stream 5")
        php("last jobs", "runJobs.php")
        php("update again", "update.php", "--quick")
    masks = [
        (r"\b1[67]\d{8}\b", "TIME"), (r"^Deleting objects expiring.*|^\.\.\. [\d.]+% done.*", "TAKEN"), (r"0x3A70626B646632\w+", "PASSWORD"), (r"0x(3\d|6[1-6]){32}\b", "TOKEN"),
        (r"\b20\d{12}\b", "TIME"), (r"'0x\w{28}'|0x(3[0-9]){14}\b", "TIME"), (r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?", "TIME"), (r"\b0\.\d{4,}\b", "CHANCE"),
        (r"[\d.,]+ ?(ms|s|pages/sec|seconds?|revs/sec|/sec)\b", "TAKEN"), (r"t=\d+", "TAKEN"),
        (r"requestId=\w+", "CHANCE"), (r'"requestId":"\w+"', "CHANCE"),
    ]
    compare(pair, masks, ["job", "l10n_cache", "objectcache", "module_deps"])


main()
