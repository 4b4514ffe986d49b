"""WordPress on InnoDB and on Terrace: installed, its tables moved, then posts written, changed, deleted and found, its schema upgraded.

    blog.py PORT SOURCE

SOURCE is WordPress's directory, with wp-config.php of this one."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from pair import Base, compare


def main():
    port, source = sys.argv[1:]
    pair = [Base(port, f"blog_{engine.lower()}", engine) for engine in ("InnoDB", "Terrace")]
    for base in pair:
        environment = dict(os.environ, TERRACE_WORDPRESS_NAME=base.name, TERRACE_WORDPRESS_HOST=f"127.0.0.1:{port}")
        for step in ("install", "write", "change", "find", "upgrade", "find", "export"):
            base.run(step, ["php", os.path.join(HERE, "blog.php"), source, step], env=environment)
            if step == "install":
                base.move()
    masks = [
        (r"VALUES \(\d+,'cron',.*", "CRON"),
        (r"20(2[4-9]|[3-9]\d)-\d\d-\d\d[T ]\d\d:\d\d:\d\d", "TIME"), (r"\b1[78]\d{8}\b", "TIME"), (r"\$P\$[\w./]{31}", "PASSWORD"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} 20\d\d \d\d:\d\d:\d\d \+0000", "TIME"), (r"20(2[4-9]|[3-9]\d)-\d\d-\d\d \d\d:\d\d", "TIME"),
    ]
    compare(pair, masks, [])


main()
