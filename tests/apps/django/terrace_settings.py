"""Settings for Django's own tests: a server on loopback, the engine that TERRACE_DJANGO_ENGINE names, and each test's outcome in the
file that TERRACE_DJANGO_OUT names."""

import json
import os
import unittest

import pymysql
from django.db.backends.mysql import features
from django.test.runner import DiscoverRunner

ENGINE, PORT = os.environ["TERRACE_DJANGO_ENGINE"], os.environ["TERRACE_DJANGO_PORT"]

pymysql.install_as_MySQLdb()
# What Django asks by the engine's name (descending indexes, checks of foreign keys) it is to expect of both.
features.DatabaseFeatures._mysql_storage_engine = "InnoDB"


def database(name):
    session = f"SET default_storage_engine = {ENGINE}"
    return {
        "ENGINE": "django.db.backends.mysql", "NAME": "mysql", "USER": "root", "HOST": "127.0.0.1", "PORT": PORT,
        "OPTIONS": {"init_command": session}, "TEST": {"NAME": f"django_{name}_{ENGINE.lower()}", "CHARSET": "utf8mb4"},
    }


DATABASES = {"default": database("one"), "other": database("two")}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SECRET_KEY = "of no use"
USE_TZ = False
TEST_RUNNER = "terrace_settings.Runner"

outcomes = {}


class Result(unittest.TextTestResult):
    def addSuccess(self, test):
        super().addSuccess(test)
        outcomes.setdefault(test.id(), ["passes", ""])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        outcomes[test.id()] = ["is skipped", reason]

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        outcomes[test.id()] = ["fails, as expected", ""]

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        outcomes[test.id()] = ["passes unexpectedly", ""]

    def failed(self, test, error):
        outcomes[test.id()] = ["fails", f"{error[0].__name__}: {error[1]}"[:300]]

    def addError(self, test, error):
        super().addError(test, error)
        self.failed(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.failed(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self.failed(test, error)


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result

    def run_suite(self, suite, **options):
        result = super().run_suite(suite, **options)
        with open(os.environ["TERRACE_DJANGO_OUT"], "w") as out:
            json.dump(outcomes, out, indent=1)
        return result
