"""A shop over SQLAlchemy's ORM, as an application uses it: relations, JSON, enums, version counters, bulk writes, savepoints, reflection.

    shop.py PORT [ENGINE]"""

import datetime
import decimal
import enum
import random
import sys
import threading

import sqlalchemy as sa
from sqlalchemy import orm

PORT, ENGINE = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "Terrace"
URL = f"mysql+pymysql://root@127.0.0.1:{PORT}"
KIND = {"mysql_engine": ENGINE, "mysql_charset": "utf8mb4"}


class Base(orm.DeclarativeBase):
    __table_args__ = KIND


class State(enum.Enum):
    open, paid, sent = "open", "paid", "sent"


# Relations without FOREIGN KEY constraints: what the program orders by itself. Django's tests and the schemas of packages have constraints.
order_tags = sa.Table("order_tags", Base.metadata, sa.Column("order_id", sa.Integer, primary_key=True), sa.Column("tag_id", sa.Integer, primary_key=True), **KIND)


class Customer(Base):
    __tablename__ = "customers"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    email: orm.Mapped[str] = orm.mapped_column(sa.String(80), unique=True)
    settings: orm.Mapped[dict] = orm.mapped_column(sa.JSON, default=dict)
    since: orm.Mapped[datetime.datetime] = orm.mapped_column(sa.DateTime, server_default=sa.func.now())
    orders: orm.Mapped[list["Order"]] = orm.relationship(primaryjoin="Customer.id == foreign(Order.customer_id)", back_populates="customer", cascade="all, delete-orphan")


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = (sa.Index("by_state", "state", sa.desc("total")), KIND)
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    customer_id: orm.Mapped[int] = orm.mapped_column(index=True)
    state: orm.Mapped[State] = orm.mapped_column(sa.Enum(State), default=State.open)
    total: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(10, 2))
    taxed: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(12, 4), sa.Computed("total * 1.19", persisted=False))
    document: orm.Mapped[bytes | None] = orm.mapped_column(sa.LargeBinary(2**24))
    version: orm.Mapped[int] = orm.mapped_column()
    customer: orm.Mapped[Customer] = orm.relationship(primaryjoin="foreign(Order.customer_id) == Customer.id", back_populates="orders")
    tags: orm.Mapped[list["Tag"]] = orm.relationship(secondary=order_tags, primaryjoin="Order.id == foreign(order_tags.c.order_id)", secondaryjoin="Tag.id == foreign(order_tags.c.tag_id)")
    __mapper_args__ = {"version_id_col": version}


class Tag(Base):
    __tablename__ = "tags"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(20), unique=True)


class Stock(Base):
    __tablename__ = "stock"
    item: orm.Mapped[str] = orm.mapped_column(sa.String(30), primary_key=True)
    place: orm.Mapped[str] = orm.mapped_column(sa.String(10), primary_key=True)
    amount: orm.Mapped[int] = orm.mapped_column(sa.CheckConstraint("amount >= 0"))


def fill(session):
    tags = [Tag(name=name) for name in ("gift", "express", "fragile")]
    customers = [Customer(email=f"c{n}@example.org", settings={"theme": "dark", "n": [n, {"ä": None}]}) for n in range(30)]
    for n, customer in enumerate(customers):
        customer.orders = [Order(total=decimal.Decimal(n * 10 + k) / 4, tags=tags[: k % 3 + 1]) for k in range(4)]
    session.add_all(customers + tags)
    session.flush()
    customers[0].orders[0].document = bytes(range(256)) * 8000
    session.commit()


def read(session):
    loaded = session.scalars(sa.select(Customer).options(orm.selectinload(Customer.orders).joinedload(Order.tags)).order_by(Customer.id)).unique().all()
    assert len(loaded) == 30 and all(len(c.orders) == 4 for c in loaded) and sum(len(o.tags) for c in loaded for o in c.orders) == 30 * (1 + 2 + 3 + 1)
    assert loaded[5].settings == {"theme": "dark", "n": [5, {"ä": None}]} and loaded[0].orders[0].document == bytes(range(256)) * 8000
    assert all(o.taxed == o.total * decimal.Decimal("1.19") for c in loaded for o in c.orders)
    per = sa.select(Order.customer_id, sa.func.sum(Order.total).label("spent"), sa.func.rank().over(order_by=sa.func.sum(Order.total).desc()).label("rank")).group_by(Order.customer_id).subquery()
    best = session.execute(sa.select(Customer.email, per.c.rank).join(per, per.c.customer_id == Customer.id).where(per.c.rank <= 2).order_by(per.c.rank)).all()
    assert [tuple(row) for row in best] == [("c29@example.org", 1), ("c28@example.org", 2)]
    dark = session.scalar(sa.select(sa.func.count()).select_from(Customer).where(Customer.settings["theme"].as_string() == "dark"))
    assert dark == 30


def change(make):
    with make() as session, make() as other:
        mine, theirs = session.get(Order, 7), other.get(Order, 7)
        mine.state = State.paid
        session.commit()
        theirs.total += 1
        try:
            other.commit()
            raise AssertionError("a stale version is refused")
        except orm.exc.StaleDataError:
            other.rollback()
    with make() as session:
        session.add(Tag(name="new"))
        for name in ("gift", "second", "gift"):
            try:
                with session.begin_nested():
                    session.add(Tag(name=name))
            except sa.exc.IntegrityError as error:
                assert error.orig.args[0] == 1062 and name == "gift"
        session.commit()
        assert session.scalars(sa.select(Tag.name).order_by(Tag.name)).all() == ["express", "fragile", "gift", "new", "second"]
        session.delete(session.get(Customer, 30))
        session.execute(sa.update(Order).where(Order.total > 50).values(state=State.sent))
        session.execute(sa.insert(Stock), [{"item": f"item {n}", "place": place, "amount": n} for n in range(500) for place in ("A", "B")])
        from sqlalchemy.dialects.mysql import insert
        upsert = insert(Stock).values([{"item": "item 3", "place": "A", "amount": 9}, {"item": "new", "place": "A", "amount": 1}])
        session.execute(upsert.on_duplicate_key_update(amount=Stock.amount + upsert.inserted.amount))
        session.commit()
        assert session.get(Stock, ("item 3", "A")).amount == 12
        assert session.scalar(sa.select(sa.func.count()).select_from(Order)) == 116
        try:
            session.execute(sa.update(Stock).values(amount=Stock.amount - 1))
            raise AssertionError("an amount below 0 is refused")
        except sa.exc.OperationalError as error:
            assert error.orig.args[0] == 4025
            session.rollback()
        assert session.scalar(sa.select(sa.func.sum(Stock.amount))) == 2 * sum(range(500)) + 10


def compete(make):
    """Sessions take one piece after the other with FOR UPDATE; none is sold twice."""
    taken, lock = [], threading.Lock()

    def buy(seed):
        rng = random.Random(seed)
        while True:
            with make() as session:
                row = session.scalars(sa.select(Stock).where(Stock.place == "B", Stock.amount.between(1, 20)).order_by(Stock.item).limit(5).with_for_update(skip_locked=True)).all()
                if not row:
                    if not session.scalar(sa.select(sa.func.count()).select_from(Stock).where(Stock.place == "B", Stock.amount.between(1, 20))):
                        return
                    continue
                one = rng.choice(row)
                one.amount -= 1
                session.commit()
                with lock:
                    taken.append(one.item)

    threads = [threading.Thread(target=buy, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert len(taken) == sum(range(1, 21)), len(taken)


def main():
    with sa.create_engine(URL).connect() as connection:
        connection.execute(sa.text("DROP DATABASE IF EXISTS shop"))
        connection.execute(sa.text("CREATE DATABASE shop CHARACTER SET utf8mb4"))
    engine = sa.create_engine(URL + "/shop?charset=utf8mb4", pool_size=8)
    Base.metadata.create_all(engine)
    make = orm.sessionmaker(engine)
    with make() as session:
        fill(session)
    with make() as session:
        read(session)
    change(make)
    compete(make)
    reflected = sa.MetaData()
    reflected.reflect(engine)
    assert {name: table.dialect_options["mysql"]["engine"].lower() for name, table in reflected.tables.items()} == {name: ENGINE.lower() for name in Base.metadata.tables}
    assert {i.name for i in reflected.tables["orders"].indexes} == {"by_state", "ix_orders_customer_id"}
    Base.metadata.drop_all(engine)
    print(f"SQLAlchemy {sa.__version__}: all well on {ENGINE}")


main()
